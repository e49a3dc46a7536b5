//! `ackpace why DEVICE`: the state of a device, and its last decisions.

use ackpace_core::disk::DeviceState;
use ackpace_core::residency::PageWait;
use ackpace_core::units::{Bytes, Time};

use super::Board;
use crate::answers::{DeviceRow, Explained, VERSION};
use crate::disk::{DeviceAnswer, DiskHandle};
use crate::limits::WORKER_ANSWER_MAX;
use crate::options::{is_url, shown};
use crate::store::device::{Device, Devices};

/// Whether the name could be a device's; no connection has such a name.
pub fn may_be_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '!');
    let is_word = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    !text.is_empty() && text.chars().all(fits) || is_url(text) && is_word
}

pub fn explained(name: &str, board: &Board) -> Result<Explained, String> {
    let site = &board.shared.site;
    let gateway = site.gateway.as_ref();
    let has_url = gateway.filter(|gateway| {
        let mut origins = gateway.origins.iter();
        origins.any(|origin| origin.shown() == name.trim_end_matches('/'))
    });
    let of_origin = has_url.and_then(|gateway| site.devices.get(gateway.device));
    let device = of_origin.map_or_else(|| named(name, &site.devices), Ok)?;
    let mut started = board.shared.disks.started();
    let handle = started.find(|(index, _)| *index == usize::from(device.index));
    let (_, handle) = handle.ok_or_else(|| {
        format!(
            "device {} was not read from yet: all that was sent was in memory; {}",
            device.shown(),
            way_of_sending(device)
        )
    })?;
    told(device, handle)
}

fn told(device: &Device, handle: &DiskHandle) -> Result<Explained, String> {
    let answer = handle.snapshot(WORKER_ANSWER_MAX).ok_or_else(|| {
        let device = device.shown();
        format!("the thread of device {device} does not answer: ask again, and look at dmesg")
    })?;
    let snapshot = match answer {
        DeviceAnswer::Serves(snapshot) => snapshot,
        DeviceAnswer::Waits(why) => return Ok(waiting(device, &why)),
    };
    Ok(Explained {
        version: VERSION,
        connection: None,
        device: Some(row(device, &snapshot.state)),
        now: sentences(device, &snapshot.state),
        decisions: snapshot.decisions,
    })
}

/// The answer about a device whose thread has no readers.
fn waiting(device: &Device, why: &str) -> Explained {
    Explained {
        version: VERSION,
        now: vec![
            format!("device {} can't be read from: {why}", device.shown()),
            "each file that is wanted from it, and each question like this one, tries again"
                .to_owned(),
        ],
        ..Explained::default()
    }
}

fn named<'a>(name: &str, devices: &'a Devices) -> Result<&'a Device, String> {
    let found = devices.met_so_far().find(|device| device.is_called(name));
    found.ok_or_else(|| {
        let all: Vec<String> = devices.met_so_far().map(Device::shown).collect();
        format!(
            "{} is no connection and no device; the devices are {}. A connection is named by its client's address and port, or as \
             in `ackpace top`",
            shown(name),
            all.join(", ")
        )
    })
}

fn row(device: &Device, state: &DeviceState) -> DeviceRow {
    DeviceRow {
        device: device.index,
        disks: device.names.to_vec(),
        rotational: device.rotational,
        streams: state.load.streams,
        rates_bytes_per_s: state.load.rates_bytes_per_s,
        target_us: state.target.0,
        depth_reads: state.depth.0 as u64,
        in_flight_reads: state.in_flight as u64,
        positioning_us: state.positioning_us,
        media_bytes_per_s: state.media_bytes_per_s,
        used_bytes: state.used_bytes,
        memory_bytes: state.load.memory_bytes,
    }
}

/// How its files are sent from memory.
fn way_of_sending(device: &Device) -> &'static str {
    match device.latency.wait() {
        PageWait::Short => "its reads are short, so what is in memory goes by sendfile(2)",
        PageWait::Long => {
            "its reads may take long, so what is in memory is copied by reads that never wait"
        }
    }
}

fn sentences(device: &Device, state: &DeviceState) -> Vec<String> {
    let load = &state.load;
    let ((target_us, target), (reads, depth)) = (state.target, state.depth);
    let is_origin = device.is_origin();
    let mut sentences = vec![format!(
        "device {} is read from by {} {}, {}/s in all",
        device.shown(),
        load.streams,
        if load.streams == 1 {
            "stream"
        } else {
            "streams"
        },
        Bytes(load.rates_bytes_per_s)
    )];
    // An origin has no arm.
    if !is_origin {
        sentences.push(format!(
            "it positions for {} between two reads and gives {}/s while it reads",
            Time(state.positioning_us),
            Bytes(state.media_bytes_per_s)
        ));
    }
    sentences.extend([
        format!(
            "the target is {}, since {}",
            Time(target_us),
            target.sentence()
        ),
        format!(
            "the depth is {reads} reads at once, since {}; it has {} now",
            depth.sentence(),
            state.in_flight
        ),
    ]);
    let mut memory = format!(
        "{} of {} for reading ahead are in use",
        Bytes(state.used_bytes),
        Bytes(load.memory_bytes)
    );
    if state.lacking_bytes > 0 {
        memory += &format!("; the next read waits for {}", Bytes(state.lacking_bytes));
    }
    sentences.push(memory);
    if !is_origin {
        sentences.push(way_of_sending(device).to_owned());
    }
    sentences
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::store::attributes::FileSystemId;
    use crate::store::leaves::KernelFiles;

    #[test]
    fn a_name_that_no_device_has_lists_those_that_there_are() {
        let devices = Devices::told_by(KernelFiles {
            sysfs: "/nowhere".into(),
            mountinfo: "/nowhere".into(),
        });
        let root = File::open("/").expect("the root directory");
        for st_dev in [1 << 40, (1 << 40) + 1] {
            let mount_id = 1;
            devices.of(&root, FileSystemId { st_dev, mount_id });
        }
        assert_eq!(named("1", &devices).map(|device| device.index), Ok(1));
        let error = named("sdz", &devices).expect_err("there is none");
        let text = "sdz is no connection and no device; the devices are 0 (of unknown disks), 1 (of unknown disks). ";
        assert!(error.starts_with(text), "{error}");
    }

    #[test]
    fn names_of_connections_and_of_devices_are_told_apart() {
        for name in [
            "0",
            "sda",
            "/dev/nvme0n1",
            "dm-0",
            "cciss!c0d0",
            "s3://a/b",
            "http://a:80/b",
        ] {
            assert!(may_be_name(name), "{name}");
        }
        for name in [
            "",
            "1.2",
            "192.0.2.1:80",
            "[::1]:80",
            "a b",
            "http://a b",
            "\u{1b}[2J",
        ] {
            assert!(!may_be_name(name), "{name}");
        }
    }
}
