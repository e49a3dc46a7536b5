//! Responses: finds what a request asks for, plans the response, and caches it for later requests. The machine sends it
//! by its plan (`core/src/worker/sending.rs`).

use std::sync::Arc;

use ackpace_core::conn::{Part, Plan, StreamId};
use ackpace_core::machine::Machine;
use ackpace_core::response_cache::{Candidate, Form};
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::{In, Worker as Decider};

use super::conns::Conn;
use super::fetch::varies;
use super::moves::Going;
use super::place::{Placed, placed};
use super::report::tell_refused;
use super::{Shared, Worker};
use crate::clock::unix_ms;
use crate::front::http::{Surroundings, Task};
use crate::front::planning::cached_core_plan;
use crate::front::site::{Served, SiteAnswer};
use crate::gateway::{Answered, Ask, Found};
use crate::log::{AccessHandle, Topic};
use crate::resolver::{Done, Job};
use crate::response_cache::{CachedResponse, Content, Key, ResponseCache};
use crate::source::Source;
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
        let plain = conn.front.plain();
        let plain = plain.filter(|_| !refuse && !self.draining);
        if let Some(found) = plain
            .as_ref()
            .and_then(|key| self.response_cache.get(key, now))
        {
            if let CachedResponse::Open { file, .. } = found.response {
                conn.body.source = Some(Source::File(Arc::clone(file)));
            }
            let plan = (conn.front).cached_plan(stream.nth, found.response, found.content, &around);
            (conn.from_response_cache, conn.placing) = (true, None);
            self.tally.response_cache_hits.add(1);
            self.tally.answered(conn.front.status());
            conn.front.used(&mut self.heads);
            return self.planned(stream, plan, now);
        }
        let missed = self.response_cache.is_on() && plain.is_some();
        self.tally.response_cache_misses.add(missed.into());
        (conn.from_response_cache, conn.placing) = (false, None);
        match conn.front.task(stream.nth, refuse, &around) {
            Task::Answer(plan) => {
                self.tally.answered(conn.front.status());
                conn.front.used(&mut self.heads);
                self.planned(stream, plan, now);
            }
            Task::Find(query) => {
                conn.listing.format = query.format;
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
            Task::Fetch(asked) => self.fetch(stream, asked, now),
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
                remote = %conn.remote(),
                owed_bytes,
                "an answer is not what its head promises; its connection ends. Please report this"
            );
        }
        self.decider.on(In::Resolved { stream, plan }, now);
        if !whole {
            let why = Why::Misframed;
            self.decider.on(In::Failed { stream, why }, now);
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
                (conn.listing.slice, conn.listing.rest) = (slice.bytes, listing);
                let len_bytes = conn.listing.slice.len() as u64;
                self.decider.on(
                    In::Sliced {
                        stream,
                        len_bytes,
                        last: slice.last,
                    },
                    now,
                );
            }
            Done::Ran(_) => debug_assert!(false, "a worker has no errands"),
            Done::Sliced(Err(error), _) => {
                if self.shared.site.gateway.is_none() {
                    let text = format_args!(
                        "a listing could not be read to its end: {error}; look at its disk (dmesg)"
                    );
                    self.shared.seldom.tell(Topic::Listing, None, text, now);
                }
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
        conn.listing.slice = Vec::new(); // it is sent
        conn.job = match (&self.shared.site.gateway, &conn.listing.pass) {
            (Some(gateway), Some(pass)) => gateway.ask(stream, Ask::Next(pass.0)),
            _ => {
                let listing = conn.listing.rest.take();
                listing.and_then(|listing| self.shared.resolver.submit(stream, Job::Slice(listing)))
            }
        };
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
    pub(super) fn answer(&mut self, stream: StreamId, answer: SiteAnswer, now: Instant) {
        let around = around(&self.shared, self.draining, &self.log, &self.decider);
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        let varies = |found: &Found| varies(&conn.front, &found.object.vary);
        if matches!(&answer, SiteAnswer::Object(found) if varies(found)) {
            return self.fetch_alone(stream, now);
        }
        let answer = match answer {
            SiteAnswer::NotFound | SiteAnswer::Listing(_) | SiteAnswer::Failed(_)
                if around.site.root.presence() != Presence::Here =>
            {
                SiteAnswer::Gone
            }
            answer => answer,
        };
        if let Some(gateway) = &around.site.gateway {
            gateway.tally.count(answered(&answer));
        }
        let mut plan = conn
            .front
            .plan(stream.nth, &answer, conn.listing.format, &around);
        self.tally.answered(conn.front.status());
        let placed = match (&answer, &self.shared.cluster) {
            (SiteAnswer::File(served), Some(cluster)) => {
                placed((cluster, &self.shared.site), conn, served, &mut plan, now)
            }
            _ => Placed::Here,
        };
        if matches!(placed, Placed::Home) && self.giving.going.is_none() {
            conn.front.unplanned(stream.nth);
            self.decider.on(In::Unresolved { stream }, now);
            return self.give(stream.conn, Going::Home, now);
        }
        conn.tell_log(stream.nth);
        let plain = conn.front.plain();
        let plain = plain.filter(|_| !self.draining && matches!(placed, Placed::Here));
        if let Some(key) = plain {
            if let SiteAnswer::File(served) = &answer {
                let cache = &mut self.response_cache;
                let cached = cache_response(cache, &key, served, &plan, now);
                conn.from_response_cache = cached.is_some();
                plan = cached.unwrap_or(plan);
            }
            count_cached(&self.tally, &self.response_cache);
        }
        tell_refused(
            &self.shared,
            conn.remote(),
            conn.front.unused(),
            &answer,
            now,
        );
        match answer {
            SiteAnswer::Exhausted => self.response_cache.shed(), // it may be what holds the descriptors
            answer => conn.carries(answer, &placed),
        }
        conn.front.used(&mut self.heads);
        self.planned(stream, plan, now);
        if let Placed::There(node, _) = placed {
            self.give(stream.conn, Going::Node(node), now);
        }
    }
}

impl Conn {
    /// What the body of its response is of.
    fn carries(&mut self, answer: SiteAnswer, placed: &Placed) {
        match answer {
            SiteAnswer::File(served) => match placed {
                Placed::Bytes(object) | Placed::There(_, object) => {
                    self.body.here = Some((served.file, served.version));
                    self.body.source = Some(Source::Object(Arc::clone(object)));
                }
                Placed::Here | Placed::Home => self.body.source = Some(Source::File(served.file)),
            },
            SiteAnswer::Object(found) => self.body.source = Some(Source::Object(found.object)),
            SiteAnswer::Through(through) => self.listing.pass = Some(through.pass),
            SiteAnswer::Listing(listing) => self.listing.rest = listing,
            _ => {}
        }
    }
}

/// Caches the response to a request whose file was just found, if it is the same for every client and the cache wants it. Returns
/// its plan, so that this request is sent what is cached, too: a copy leaves in one call.
fn cache_response(
    response_cache: &mut ResponseCache,
    key: &Key<'_>,
    served: &Served,
    plan: &Plan,
    now: Instant,
) -> Option<Plan> {
    let candidate = Candidate {
        path_len_bytes: served.path.len(),
        len_bytes: served.version.len_bytes,
        changed_unix_s: (served.times.modified_unix_s).max(served.times.changed_unix_s),
        varies: served.vary,
    };
    let Some(Part::Bytes(head)) = plan.parts.first() else {
        return None;
    };
    let form = response_cache.wants(key, &candidate, unix_ms() / 1000)?;
    let response = match form {
        // Read anew each time: the bytes may change without a new time, so those of an older response prove nothing.
        Form::Copied => match served.file.resident(&served.version) {
            Some(body) => CachedResponse::whole(head, &body),
            None => return None,
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
    let plan = cached_core_plan(&response, &content, key.keep_alive);
    let kept = response_cache.keep(key, content, response, now);
    kept.then_some(plan)
}

/// How an answer counts for a gateway.
fn answered(answer: &SiteAnswer) -> Answered {
    match answer {
        SiteAnswer::Object(found) => found.how.into(),
        SiteAnswer::Relayed { .. } | SiteAnswer::Through(_) => Answered::Passed,
        // What a bucket answers in other words.
        SiteAnswer::NotFound | SiteAnswer::Gone | SiteAnswer::Forbidden(_) | SiteAnswer::Slash => {
            Answered::Passed
        }
        _ => Answered::Failed,
    }
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
