//! What a worker tells: its load to the other workers, its counters to operators, and to the log what is wrong with a
//! file.

use std::fmt::Arguments;
use std::io;

use ackpace_core::conn::StreamId;
use ackpace_core::disk::ReadError;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_wire::access_log::Remote;

use super::{Shared, Worker};
use crate::front::planning::asked_path;
use crate::front::site::SiteAnswer;
use crate::limits::LOGGED_PATH_MAX;
use crate::log::Topic;

impl Worker {
    /// Publishes this worker's load for the others, and for other nodes.
    pub(super) fn report_load(&mut self, now: Instant) {
        let cluster = self.shared.cluster.as_ref();
        if cluster.is_some_and(|cluster| cluster.asks_census(self.index)) {
            self.tally.decided.stand(&self.decider.census(now));
        }
        if self.shared.handovers.len() > 1 {
            let rate_bytes_per_s = self.decider.rates_bytes_per_s(now);
            self.shared.handovers[self.index].measured(rate_bytes_per_s);
        }
    }

    /// Publishes the machine's counters, and reports lost wakeups.
    pub(super) fn publish(&mut self) {
        let mended = self.decider.counts().mended;
        let more = mended - std::mem::replace(&mut self.mended, mended);
        if more > 0 {
            tracing::error!(
                streams = more,
                "streams waited for the disk and nothing worked for them; they go on now. Please report this"
            );
        }
        self.tally.decided.follow(self.decider.counts());
        self.tally
            .connections
            .set(self.decider.connections().into());
        self.tally
            .target_us
            .set(self.decider.target_us().unwrap_or(0));
    }

    /// A read for a response failed, or its file ended before the promised length.
    pub(super) fn tell_read_failed(
        &mut self,
        stream: StreamId,
        error: ReadError,
        why: Why,
        now: Instant,
    ) {
        let conn = self.conns.get(stream.conn);
        let Some(source) = conn.and_then(|conn| conn.body.source.as_ref()) else {
            return;
        };
        let file = self.shared.site.shown_source(source);
        let offset_bytes = error.offset_bytes;
        if source.object().is_some() {
            self.tell_object(&file, offset_bytes, why, now);
        } else if why == Why::ReadFailed {
            let error = io::Error::from_raw_os_error(error.errno);
            let text = format_args!(
                "read failed at offset_bytes={offset_bytes}: {error}; the response ends here. Look at the disk (dmesg)"
            );
            let seldom = &self.shared.seldom;
            seldom.tell(Topic::Unreadable, Some(&file), text, now);
        } else {
            self.tell_ended(&file, offset_bytes, why, now);
        }
    }

    /// A response can't go on, since its file is not what was promised or can't be read.
    pub(super) fn tell_broken(&mut self, stream: StreamId, at_bytes: u64, why: Why, now: Instant) {
        let conn = self.conns.get(stream.conn);
        if let Some(source) = conn.and_then(|conn| conn.body.source.as_ref()) {
            let file = self.shared.site.shown_source(source);
            match source.object() {
                Some(_) => self.tell_object(&file, at_bytes, why, now),
                None => self.tell_ended(&file, at_bytes, why, now),
            }
        }
    }

    /// A response with an object of an origin ends early.
    fn tell_object(&self, object: &str, at_bytes: u64, why: Why, now: Instant) {
        let why = match why {
            Why::FileChanged => "the origin has a new version: responses with the old one end",
            _ => "no origin brings the rest: the response ends",
        };
        let text = format_args!("{why} at offset_bytes={at_bytes}");
        (self.shared.seldom).tell(Topic::Object, Some(object), text, now);
    }

    fn tell_ended(&self, file: &str, at_bytes: u64, why: Why, now: Instant) {
        let seldom = &self.shared.seldom;
        match why {
            Why::FileChanged => seldom.tell(
                Topic::FileChanged,
                Some(file),
                format_args!(
                    "{why} at offset_bytes={at_bytes}: the response ends here. Publish new versions by rename"
                ),
                now,
            ),
            _ => seldom.tell(
                Topic::Unreadable,
                Some(file),
                format_args!(
                    "{why} at offset_bytes={at_bytes}: the response ends before its last byte; docs/operating/logs.md says \
                     what to do"
                ),
                now,
            ),
        }
    }
}

/// Tells the log why the client did not get what its request `head` asks for, if an operator may want to know.
pub(super) fn tell_refused(
    shared: &Shared,
    remote: Remote,
    head: &[u8],
    answer: &SiteAnswer,
    now: Instant,
) {
    let path = || {
        let mut path = shared.site.shown(&asked_path(head));
        if let Some((end, _)) = path.char_indices().nth(LOGGED_PATH_MAX) {
            path.truncate(end);
            path.push('…');
        }
        path
    };
    let seldom = |topic, text: Arguments<'_>| shared.seldom.tell(topic, None, text, now);
    match answer {
        SiteAnswer::Astray(why) => tracing::debug!(%remote, path = path(), "404: {why}"),
        SiteAnswer::Forbidden(why) => tracing::debug!(%remote, path = path(), "403: {why}"),
        SiteAnswer::Failed(error) => seldom(
            Topic::Failed,
            format_args!(
                "500 for {}: {error}; look at the file, its rights and its disk",
                path()
            ),
        ),
        SiteAnswer::Exhausted => seldom(
            Topic::Exhausted,
            format_args!("503: no descriptors or memory left for a request; raise LimitNOFILE"),
        ),
        SiteAnswer::Leased => seldom(
            Topic::Leased,
            format_args!(
                "503 for {}: another program has a lease on the file and does not give it up; Samba has them with `kernel \
                 oplocks`",
                path()
            ),
        ),
        SiteAnswer::Crowded if shared.site.gateway.is_some() => seldom(
            Topic::Crowded,
            format_args!("503: too many requests wait for origins that do not answer"),
        ),
        SiteAnswer::Crowded => seldom(
            Topic::Crowded,
            format_args!(
                "503: too many requests wait for a disk that does not answer; look at it (dmesg)"
            ),
        ),
        SiteAnswer::NoAnswer(_) => {} // the upstream's thread tells of its origins
        SiteAnswer::File(_)
        | SiteAnswer::Object(_)
        | SiteAnswer::Relayed { .. }
        | SiteAnswer::Through(_)
        | SiteAnswer::NotCached
        | SiteAnswer::Slash
        | SiteAnswer::Elsewhere(_)
        | SiteAnswer::Listing(_)
        | SiteAnswer::NotFound
        | SiteAnswer::Gone => {}
    }
}
