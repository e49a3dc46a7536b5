//! What becomes of lines when a sink is opened anew.

use super::*;

/// A sink that counts how often it was renewed.
struct Renewed {
    sink: Sink,
    times: usize,
}

impl Write for Renewed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl super::super::Sink for Renewed {
    fn renew(&mut self) -> bool {
        self.times += 1;
        self.sink = Sink::default();
        true
    }
}

#[test]
fn a_line_torn_before_a_sink_is_renewed_as_the_same_file_gets_its_end() {
    let file = Sink::new([Ok(1), Err(io::ErrorKind::StorageFull.into())]);
    let mut writer = writer(file.clone(), noting(&Troubles::default()));
    writer.take(line("aa"));
    writer.write(Instant::now());
    writer.shared.renewing.store(true, Relaxed);
    writer.renew();
    writer.take(line("bb"));
    writer.write(Instant::now());
    assert_eq!(file.text(), "a\nbb\n");
}

#[test]
fn a_renewed_sink_gets_what_comes_after_and_no_end_of_a_line_torn_before() {
    let old = Sink::new([Ok(1), Err(io::ErrorKind::StorageFull.into())]);
    let renewed = Renewed {
        sink: old.clone(),
        times: 0,
    };
    let mut writer = writer(renewed, noting(&Troubles::default()));
    writer.take(line("aa"));
    writer.write(Instant::now());
    writer.shared.renewing.store(true, Relaxed);
    writer.renew();
    writer.renew();
    writer.take(line("bb"));
    writer.write(Instant::now());
    assert_eq!(writer.sink.times, 1, "asked once");
    assert_eq!(
        (old.text(), writer.sink.sink.text()),
        ("a".into(), "bb\n".into())
    );
}

/// A pipe that takes some bytes and has no reader from then on, until it is renewed.
struct Unread {
    old: Sink,
    room_bytes: usize,
    new: Option<Sink>,
}

impl Write for Unread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(new) = &mut self.new {
            return new.write(bytes);
        }
        if self.room_bytes == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken_bytes = self.old.write(&bytes[..bytes.len().min(self.room_bytes)])?;
        self.room_bytes -= taken_bytes;
        Ok(taken_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl super::super::Sink for Unread {
    fn renew(&mut self) -> bool {
        self.new = Some(Sink::default());
        true
    }
}

#[test]
fn a_pipe_that_nobody_reads_is_renewed_all_the_same_and_no_line_is_lost() {
    for (room_bytes, in_old, in_new) in [
        (0, "", "one\ntwo\n"),
        (2, "on", "one\ntwo\n"),
        (4, "one\n", "two\n"),
        (6, "one\ntw", "two\n"),
    ] {
        let sink = Unread {
            old: Sink::default(),
            room_bytes,
            new: None,
        };
        let mut writer = writer(sink, noting(&Troubles::default()));
        writer.shared.renewing.store(true, Relaxed);
        for text in ["one", "two"] {
            writer.take(line(text));
        }
        writer.write(Instant::now());
        let new = writer.sink.new.as_ref().expect("it was renewed");
        assert_eq!((&*writer.sink.old.text(), &*new.text()), (in_old, in_new));
        assert_eq!(
            writer.shared.counts(),
            Counts {
                written: 2,
                ..Counts::default()
            }
        );
    }
}
