//! Responses: finds what a request asks for, plans the response, and caches it for later requests. The machine sends it
//! by its plan (`core/src/worker/sending.rs`).

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

use ackpace_core::conn::{Part, Plan, StreamId};
use ackpace_core::machine::Machine;
use ackpace_core::residency::Confirmation;
use ackpace_core::response_cache::{Candidate, Form};
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::{In, Worker as Decider};

use super::events::EventSource;
use super::report::tell_refused;
use super::source::Source;
use super::{Shared, Worker};
use crate::clock::unix_ms;
use crate::front::http::{Surroundings, Task};
use crate::front::plain;
use crate::front::site::{Served, Site, SiteAnswer};
use crate::log::{AccessHandle, Topic};
use crate::resolver::{Done, Job};
use crate::response_cache::changes::LookedUpAt;
use crate::response_cache::watch::{Bytes, Watch};
use crate::response_cache::{CachedResponse, Content, Key, Made, ResponseCache};
use crate::store::root::Wait;
use crate::store::served::Presence;
use crate::tally::Tally;

impl Worker {
    /// Finds the response to the request just received: in the response cache, at once, or by a resolver.
    pub(super) fn resolve(&mut self, stream: StreamId, refuse: bool, now: Instant) {
        let around = around(&self.shared, self.draining, &self.log, &self.decider);
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        let plain = conn.front.plain(around.site.files.site());
        let plain = plain.filter(|_| !refuse && !self.draining);
        if let Some(found) = plain
            .as_ref()
            .and_then(|key| self.response_cache.get(key, now))
        {
            if let CachedResponse::Open { file, .. } = found.response {
                conn.source = Some(Source::File(Arc::clone(file)));
                conn.version_confirmed = found
                    .compared_now
                    .then(|| Confirmation::new(now, self.shared.clock.now()));
            }
            let plan = (conn.front).cached_plan(stream.nth, found.response, found.content, &around);
            conn.from_response_cache = true;
            self.tally.response_cache_hits.add(1);
            self.tally.answered(conn.front.status());
            conn.front.used(&mut self.heads);
            return self.planned(stream, plan, now);
        }
        let missed = self.response_cache.is_on() && plain.is_some();
        self.tally.response_cache_misses.add(missed.into());
        conn.from_response_cache = false;
        conn.looked_up = self.response_cache.changes().looked_up_at(now);
        match conn.front.task(stream.nth, refuse, &around) {
            Task::Answer(plan) => {
                self.tally.answered(conn.front.status());
                conn.front.used(&mut self.heads);
                self.planned(stream, plan, now);
            }
            Task::Find(query) => {
                conn.format = query.format;
                match self.shared.site.find(&query, Wait::No) {
                    Some(answer) => self.answer(stream, answer, now),
                    None => {
                        conn.job = self.shared.resolver.submit(stream, Job::Find(query));
                        if conn.job.is_none() {
                            self.answer(stream, SiteAnswer::Crowded, now);
                        }
                    }
                }
            }
        }
    }

    /// Gives the plan to the machine, and the connection a count of its own of the bytes that the head promises. A
    /// connection whose last response differed from what its head promised gets no further one.
    fn planned(&mut self, stream: StreamId, plan: Plan, now: Instant) {
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        if let Some(bytes) = conn.front.record_bytes(stream.nth) {
            self.decider.on(In::Recorded { stream, bytes }, now);
        }
        let owed_bytes = std::mem::replace(&mut conn.owed_bytes, plan.promised_bytes());
        let whole = owed_bytes.unwrap_or(0) == 0;
        if !whole || !plan.is_sound() {
            tracing::error!(
                remote = %conn.remote,
                owed_bytes,
                "an answer is not what its head promises; its connection ends. Please report this"
            );
        }
        match whole {
            true => self.decider.on(In::Resolved { stream, plan }, now),
            false => self.tcp_event(stream.conn, &EventSource::PromiseBroken, now),
        }
    }

    /// A resolver has found a file, or made a slice of a listing.
    pub(super) fn resolver_done(&mut self, stream: StreamId, done: Done, now: Instant) {
        match done {
            Done::Found(answer) => self.answer(stream, answer, now),
            Done::Sliced(Ok(slice), listing) => {
                let Some(conn) = self.conns.get(stream.conn) else {
                    return;
                };
                if let Some(unknown) = &slice.unknown {
                    let text = format_args!(
                        "{unknown}; it is listed without size and date: look at its disk or its mount"
                    );
                    self.shared.seldom.tell(Topic::Listing, None, text, now);
                }
                (conn.slice, conn.listing) = (slice.bytes, listing);
                let len_bytes = conn.slice.len() as u64;
                self.decider.on(
                    In::Sliced {
                        stream,
                        len_bytes,
                        last: slice.last,
                    },
                    now,
                );
            }
            Done::Sliced(Err(error), _) => {
                let text = format_args!(
                    "a listing could not be read to its end: {error}; look at its disk (dmesg)"
                );
                self.shared.seldom.tell(Topic::Listing, None, text, now);
                self.decider.on(
                    In::Failed {
                        stream,
                        why: Why::ListingFailed,
                    },
                    now,
                );
            }
        }
    }

    /// The next slice of a listing is made by a resolver.
    pub(super) fn slice(&mut self, stream: StreamId, now: Instant) {
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        conn.slice = Vec::new(); // it is sent
        let listing = conn.listing.take();
        conn.job =
            listing.and_then(|listing| self.shared.resolver.submit(stream, Job::Slice(listing)));
        if conn.job.is_none() {
            self.decider.on(
                In::Failed {
                    stream,
                    why: Why::ListingFailed,
                },
                now,
            );
        }
    }

    /// Plans the response to a request whose path was looked up.
    fn answer(&mut self, stream: StreamId, answer: SiteAnswer, now: Instant) {
        let around = around(&self.shared, self.draining, &self.log, &self.decider);
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        let answer = match answer {
            SiteAnswer::NotFound | SiteAnswer::Listing(_) | SiteAnswer::Failed(_)
                if around.site.root.presence() != Presence::Here =>
            {
                SiteAnswer::Gone
            }
            answer => answer,
        };
        let plan = conn.front.plan(stream.nth, &answer, conn.format, &around);
        self.tally.answered(conn.front.status());
        let plain = conn.front.plain(around.site.files.site());
        let plain = plain.filter(|_| !self.draining);
        if let (Some(key), SiteAnswer::File(served)) = (plain, &answer) {
            let site = &self.shared.site;
            cache_response(
                &mut self.response_cache,
                &mut self.watch,
                site,
                &key,
                served,
                &plan,
                conn.looked_up,
            );
            count_cached(&self.tally, &self.response_cache);
        }
        tell_refused(&self.shared, conn.remote, conn.front.unused(), &answer, now);
        match answer {
            SiteAnswer::File(served) => conn.source = Some(Source::File(served.file)),
            SiteAnswer::Listing(listing) => conn.listing = listing,
            SiteAnswer::Exhausted => self.response_cache.shed(), // it may be what holds the descriptors
            _ => {}
        }
        conn.front.used(&mut self.heads);
        self.planned(stream, plan, now);
    }

    /// Looks up again the files of cached responses that will soon be too old, once the clients of this turn have their
    /// responses.
    pub(super) fn look_up_again(&mut self, now: Instant) {
        while let Some(due) = self.response_cache.due() {
            let looked_up = self.response_cache.changes().looked_up_at(now);
            let (key, site) = (&due, &self.shared.site);
            let kept = plain::answer_again(key, site).is_some_and(|(served, plan)| {
                cache_response(
                    &mut self.response_cache,
                    &mut self.watch,
                    site,
                    key,
                    &served,
                    &plan,
                    looked_up,
                )
            });
            if !kept {
                self.response_cache.forget(key);
            }
            count_cached(&self.tally, &self.response_cache);
        }
    }
}

/// Caches the response if it is the same for every client and the cache wants it; returns whether it is cached. `looked_up`: when
/// the look-up of its file began.
fn cache_response(
    response_cache: &mut ResponseCache,
    watch: &mut Option<Watch>,
    site: &Site,
    key: &Key<'_>,
    served: &Served,
    plan: &Plan,
    looked_up: LookedUpAt,
) -> bool {
    let candidate = Candidate {
        path_len_bytes: key.path.len(),
        len_bytes: served.version.len_bytes,
        changed_unix_s: (served.times.modified_unix_s).max(served.times.changed_unix_s),
        varies: served.vary,
    };
    let Some(Part::Bytes(head)) = plan.parts.first() else {
        return false;
    };
    let Some(form) = response_cache.wants(key, &candidate, unix_ms() / 1000) else {
        return false;
    };
    if served.is_elsewhere {
        return false; // a change of the name by which it was asked for would not be seen
    }
    let watch_state = watch.as_mut().and_then(|watch| {
        let place = site.place(&served.file.path)?;
        let bytes = match form {
            Form::Copied => Bytes::Copied { name: place.name },
            Form::Open => Bytes::Open,
        };
        // By name, a worker could wait for a daemon on the way.
        let through = PathBuf::from(format!("/proc/self/fd/{}", place.opened.as_raw_fd()));
        watch.add(
            &place.directory,
            &through,
            bytes,
            response_cache.changes(),
            looked_up,
        )
    });
    let response = match form {
        // Read anew each time: the bytes may change without a new time, so those of an older response prove nothing.
        Form::Copied => match served.file.resident(&served.version) {
            Some(body) => CachedResponse::whole(head, &body),
            None => return false,
        },
        Form::Open => CachedResponse::Open {
            head: Arc::clone(head),
            file: Arc::clone(&served.file),
        },
    };
    let content = Content {
        object: served.file.id,
        version: served.version,
    };
    let made = Made {
        content,
        response,
        looked_up,
        watch_state,
    };
    response_cache.keep(key, made)
}

/// Publishes the size of the response cache.
fn count_cached(tally: &Tally, response_cache: &ResponseCache) {
    let (files, bytes) = response_cache.held();
    tally.response_cache_files.set(files);
    tally.response_cache_bytes.set(bytes);
}

/// What a response depends on besides its request.
fn around<'a>(
    shared: &'a Shared,
    draining: bool,
    log: &AccessHandle,
    decider: &Decider,
) -> Surroundings<'a> {
    Surroundings {
        site: &shared.site,
        draining,
        record_room_bytes: log.is_on().then(|| decider.record_room_bytes()),
    }
}
