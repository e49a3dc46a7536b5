//! Folders of a bucket: an index file if one is there, or else a listing, which is made page by page as its client takes it.

use std::sync::{Arc, Weak};

use ackpace_core::conn::StreamId;
use ackpace_core::units::Instant;
use ackpace_core::upstream::{Fault, Kind, TaskId};
use ackpace_wire::s3;

use super::opening::Waiter;
use super::pages::Pages;
use super::passing::{End, Passing};
use super::receiving::Verdict;
use super::{Job, REFUSED, Upstream};
use crate::clock::unix_ms;
use crate::front::planning::listed_of;
use crate::front::site::SiteAnswer;
use crate::gateway::{Asked, Found, Index, LookUp, Pass, Through};
use crate::resolver::Done;

/// Listings under way, each of which holds a page. More: 503.
const LISTINGS_MAX: usize = 64;
const NO_CREDENTIALS: &str = "no credentials were given: name a file of them in --s3-credentials-file, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";

impl Upstream {
    /// A stream wants what is at a target of a bucket that ends with a slash: the index file of this number, or what comes after
    /// them.
    pub(super) fn open_folder(&mut self, waiter: Waiter, nth: usize, now: Instant) {
        let Waiter {
            stream,
            mut asked,
            interest,
        } = waiter;
        let index = asked.index_of.take();
        let folder = index.map_or_else(|| asked.target.clone(), |index| index.folder);
        let gateway = Arc::clone(&self.gateway);
        if let Some(name) = gateway.index.get(nth).filter(|_| !asked.lists) {
            let mut target = folder.to_vec();
            s3::encode(name.as_bytes(), &mut target);
            asked.target = target.into();
            asked.index_of = Some(Index { folder, nth });
            return self.open_index(stream, asked, interest, now);
        }
        asked.target = folder;
        let is_listing = |job: &&Job| matches!(job, Job::Pass(passing) if passing.pages.is_some());
        let refused = match gateway.listing || asked.lists {
            false => {
                let why = "it is a folder without an index, and listing is off";
                Some(SiteAnswer::Forbidden(why))
            }
            true if self.jobs.values().filter(is_listing).count() < LISTINGS_MAX => None,
            true => Some(SiteAnswer::Crowded),
        };
        if let Some(answer) = refused {
            return self.answer_to(stream, &interest, answer);
        }
        let pages = Pages::new(asked.target.clone(), listed_of(&asked.head));
        self.pass_pages(stream, asked, interest, Some(pages), now);
    }

    /// An index file may be known.
    fn open_index(&mut self, stream: StreamId, asked: Asked, interest: Weak<()>, now: Instant) {
        match self
            .gateway
            .catalog
            .look_up(&asked.target, unix_ms() / 1000)
        {
            LookUp::Fresh(object) => {
                let how = object.met(asked.hint);
                let found = Found {
                    validity: object.validity(),
                    object,
                    how,
                    collapsed: false,
                };
                self.answer_to(stream, &interest, SiteAnswer::Object(found));
            }
            LookUp::Passes => self.pass(stream, asked, interest, now),
            LookUp::Stale(..) | LookUp::Unknown => self.open(stream, asked, interest, now),
        }
    }

    /// An origin does not have what was asked for there: the next index file is looked for, or it is missing.
    pub(super) fn missing(&mut self, waiter: Waiter, now: Instant) {
        match &waiter.asked.index_of {
            Some(index) => {
                let nth = index.nth + 1;
                self.open_folder(waiter, nth, now);
            }
            None => self.answer_to(waiter.stream, &waiter.interest, SiteAnswer::NotFound),
        }
    }

    /// The head of a response of a bucket that passes.
    /// Returns what becomes of it if it is an error, or a page of a listing.
    pub(super) fn bucket_passing(
        &mut self,
        task: TaskId,
        status: u16,
        now: Instant,
    ) -> Option<Verdict> {
        let origin = self.origin_of(task);
        let Some(Job::Pass(passing)) = self.jobs.get_mut(&task) else {
            return None;
        };
        match &mut passing.pages {
            Some(pages) if status == 200 => {
                pages.origin = origin;
                pages.body.clear(); // of a try before
                return Some(Verdict::Take);
            }
            Some(_) if passing.pass.is_some() => {
                let why = "an error in place of a page of a listing";
                return Some(Verdict::Fault(Fault::Bad, why));
            }
            None if matches!(status, 200 | 206 | 304 | 412 | 416) => return None,
            _ => {}
        }
        self.bucket_refused(task, (origin, status), now);
        Some(Verdict::Skip)
    }

    fn bucket_refused(&mut self, task: TaskId, (origin, status): (u16, u16), now: Instant) {
        let Some(Job::Pass(passing)) = self.jobs.remove(&task) else {
            return;
        };
        self.passes.remove(&passing.number);
        let lists = passing.pages.is_some();
        let (stream, asked, interest) = (passing.stream, passing.asked, passing.interest);
        if !lists && s3::is_missing(status, None) {
            if status == 403 {
                self.tell_denied(origin, now);
            }
            let waiter = Waiter {
                stream,
                asked,
                interest,
            };
            return self.missing(waiter, now);
        }
        let (answer, told) = match status {
            403 => {
                let why = "the object store does not let the gateway list it";
                (SiteAnswer::Forbidden(why), "clients that list get 403")
            }
            _ => (SiteAnswer::NoAnswer(Fault::Bad), REFUSED),
        };
        self.tell_refused(origin, (status, None), told, now);
        self.answer_to(stream, &interest, answer);
    }

    /// A bucket answered neither with an object nor that it is missing. `told`: what clients get.
    pub(super) fn tell_refused(
        &self,
        origin: u16,
        (status, code): (u16, Option<&str>),
        told: &str,
        now: Instant,
    ) {
        let cure = match (status, code) {
            (301 | 307, _) => "is it in the region of AWS_REGION?",
            (400 | 401 | 403, _) if !self.has_credentials(origin) => NO_CREDENTIALS,
            (400 | 401 | 403, _) => "look at its credentials, and the clock of this machine",
            (404, _) => "is there such a bucket?",
            _ => "look at the store",
        };
        let code = code.unwrap_or("no code");
        let text = format!("it answers {status} ({code}), and {told}; {cure}");
        self.tell_of(origin, &text, now);
    }

    /// A bucket says 403 for a key, as it does for a missing one to who may not list. Told once: that may be as it should be.
    pub(super) fn tell_denied(&mut self, origin: u16, now: Instant) {
        if std::mem::replace(&mut self.is_denial_told, true) {
            return;
        }
        let cure = match self.has_credentials(origin) {
            true => {
                "let these credentials read it (s3:GetObject), and list it (s3:ListBucket) so that it tells one from the other"
            }
            false => NO_CREDENTIALS,
        };
        let text = format!(
            "it answers 403 (AccessDenied), and clients get 404: a key may be missing, or may not be read; {cure}. This is told once"
        );
        self.tell_of(origin, &text, now);
    }

    fn has_credentials(&self, origin: u16) -> bool {
        let bucket = &self.gateway.origins[usize::from(origin)].bucket;
        bucket.as_ref().is_some_and(|bucket| bucket.is_signed())
    }

    /// A page is whole.
    pub(super) fn page_ended(&mut self, mut passing: Passing, now: Instant) {
        let Some(pages) = &mut passing.pages else {
            return;
        };
        let origin = pages.origin;
        let bucket = self.gateway.origins[usize::from(origin)].bucket.as_ref();
        let prefix = bucket.map(|bucket| bucket.prefix_of(&pages.folder));
        let rendered = pages.render(&prefix.unwrap_or_default(), &mut passing.waiting);
        let is_nothing = pages.entries == 0 && !pages.goes_on() && &*pages.folder != b"/";
        passing.end = match (&rendered, pages.goes_on()) {
            (Err(_), _) => End::Broken,
            (Ok(()), true) => End::Open,
            (Ok(()), false) => End::Whole,
        };
        if let Err(why) = rendered {
            self.tell_origin(origin, why, now);
        }
        if passing.pass.is_some() {
            return self.rest_of(passing, now);
        }
        let answer = match passing.end {
            End::Broken if passing.waiting.is_empty() => SiteAnswer::NoAnswer(Fault::Bad),
            End::Whole if is_nothing => SiteAnswer::NotFound,
            _ => {
                let through = listing_head(&mut passing);
                let (stream, interest) = (passing.stream, passing.interest.clone());
                self.rest_of(passing, now);
                return self.answer_to(stream, &interest, SiteAnswer::Through(through));
            }
        };
        self.passes.remove(&passing.number);
        self.answer_to(passing.stream, &passing.interest, answer);
    }

    /// If the client has taken all of a page and wants more, the next page is asked for.
    pub(super) fn next_page(&mut self, task: TaskId, now: Instant) {
        let wants = |job: &Job| match job {
            Job::Pass(passing) => {
                passing.is_drained() && passing.pages.as_ref().is_some_and(Pages::waits)
            }
            _ => false,
        };
        if !self.jobs.get(&task).is_some_and(wants) {
            return;
        }
        if let Some(Job::Pass(mut passing)) = self.jobs.remove(&task) {
            let number = passing.number;
            if let Some(pages) = &mut passing.pages {
                pages.is_asked = true;
            }
            let task = self.begin(Kind::Pass, Job::Pass(passing), now);
            self.passes.insert(number, task);
        }
    }

    /// Which origin answers a task; the first if none does.
    pub(super) fn origin_of(&self, task: TaskId) -> u16 {
        let link = self.links.values().find(|link| link.task == Some(task));
        link.map_or(0, |link| link.origin)
    }

    pub(super) fn answer_to(&self, stream: StreamId, interest: &Weak<()>, answer: SiteAnswer) {
        if interest.strong_count() > 0 {
            self.return_to(stream, Done::Found(answer));
        }
    }
}

/// The head of a listing.
fn listing_head(passing: &mut Passing) -> Through {
    let pass = Arc::new(Pass(passing.number));
    passing.pass = Some(Arc::downgrade(&pass));
    passing.chunked = passing.asked.chunked;
    let format = passing.pages.as_ref().map(|pages| pages.format);
    let content_type = format.unwrap_or_default().content_type();
    Through {
        status: 200,
        fields: format!("Content-Type: {content_type}\r\n")
            .into_bytes()
            .into(),
        len_bytes: None,
        pass,
    }
}
