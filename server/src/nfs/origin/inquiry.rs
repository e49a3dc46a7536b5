//! What a call asks of the origins, one thing after the other, and what it has heard: the call is carried out anew with each answer,
//! until it has all that its reply needs.

use std::sync::Arc;

use ackpace_wire::listing::format_of;
use ackpace_wire::nfs3::Status;
use ackpace_wire::s3::decode;

use super::Origin;
use super::listings::{Arriving, Names, NoListing};
use super::place::target_of;
use crate::front::site::SiteAnswer;
use crate::gateway::{Ask, Asked, Hint, Object, Through};
use crate::resolver::Done;

/// Questions of one call. More: it fails. A handle of a long path takes one for each folder, and a few more where hints fit several.
const QUESTIONS_MAX: u32 = 128;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What is at the path of a file.
    File(Arc<[u8]>),
    /// Which names a folder has.
    Names(Arc<[u8]>),
}

/// An answer.
#[derive(Clone, Debug)]
pub enum Heard {
    /// An object.
    Object(Arc<Object>),
    /// A redirect to the same path with a slash.
    Folder,
    /// Names of a folder.
    Names(Arc<Names>),
    /// There is nothing.
    Missing,
    /// This, whatever is asked again.
    Not(Status),
}

/// What a call has asked and heard.
#[derive(Debug, Default)]
pub struct Inquiry {
    heard: Vec<(Question, Heard)>,
    waits: Option<Waits>,
    asked: u32,
    /// What the log is told: the path, and what is wrong with it.
    pub told: Option<(Arc<[u8]>, String)>,
}

#[derive(Debug)]
struct Waits {
    question: Question,
    /// A HEAD was not enough.
    by_get: bool,
    arriving: Option<Box<Arriving>>,
}

/// What an answer about a file says.
enum Said {
    Is(Heard),
    /// What is there is no object by this answer.
    NoObject(u16),
}

impl Inquiry {
    /// The answer to a question, if it was asked.
    pub fn answer(&self, question: &Question) -> Option<&Heard> {
        let mut heard = self.heard.iter();
        heard.find(|(of, _)| of == question).map(|(_, heard)| heard)
    }

    /// The log is told that NFS can't read what is there.
    pub fn tell_no_object(&mut self, path: &Arc<[u8]>) {
        self.told = Some((Arc::clone(path), no_object(200)));
    }

    /// Asks. `None`: the call has asked too much.
    pub fn ask(&mut self, question: Question, origin: &Origin) -> Option<Ask> {
        self.asked += 1;
        if self.asked > QUESTIONS_MAX {
            return None;
        }
        let ask = match &question {
            Question::File(path) => origin.opens(path, Hint::Head),
            Question::Names(path) => origin.lists(path),
        };
        self.waits = Some(Waits {
            question,
            by_get: false,
            arriving: None,
        });
        Some(ask)
    }

    /// Hears an answer. Returns what is asked next before the call goes on.
    pub fn hear(&mut self, done: Done, origin: &Origin) -> Option<Ask> {
        let mut waits = self.waits.take()?;
        let (heard, next) = match (&waits.question, done) {
            (Question::File(path), Done::Found(answer)) => {
                let target = target_of(path, false, origin.has_buckets());
                match (said(&target, answer), waits.by_get) {
                    (Said::Is(heard), _) => (Some(heard), None),
                    (Said::NoObject(status), false) if needs_get(status) => {
                        waits.by_get = true;
                        (None, Some(origin.opens(path, Hint::Span(0, 0))))
                    }
                    (Said::NoObject(status), _) => {
                        self.told = Some((Arc::clone(path), no_object(status)));
                        (Some(Heard::Not(Status::Io)), None)
                    }
                }
            }
            (Question::Names(path), Done::Found(SiteAnswer::Through(through))) => {
                match begins(path, through, origin) {
                    Ok(arriving) => {
                        let ask = Ask::Next(arriving.pass.0);
                        waits.arriving = Some(Box::new(arriving));
                        (None, Some(ask))
                    }
                    Err(heard) => (Some(heard), None),
                }
            }
            (Question::Names(_), Done::Found(answer)) => (Some(refused(&answer)), None),
            (Question::Names(path), Done::Sliced(slice, _)) => {
                let path = Arc::clone(path);
                self.sliced(&path, slice, &mut waits, origin)
            }
            _ => (Some(Heard::Not(Status::ServerFault)), None),
        };
        match heard {
            Some(heard) => self.heard.push((waits.question, heard)),
            None => self.waits = Some(waits),
        }
        next
    }

    /// A piece of a listing.
    fn sliced(
        &mut self,
        path: &Arc<[u8]>,
        slice: std::io::Result<crate::front::listing::Slice>,
        waits: &mut Waits,
        origin: &Origin,
    ) -> (Option<Heard>, Option<Ask>) {
        let (Ok(slice), Some(mut arriving)) = (slice, waits.arriving.take()) else {
            return (Some(Heard::Not(Status::Jukebox)), None); // it broke off
        };
        let taken = arriving.take(&origin.key, &slice.bytes);
        let names = match (taken, slice.last) {
            (Ok(()), false) => {
                let ask = Ask::Next(arriving.pass.0);
                waits.arriving = Some(arriving);
                return (None, Some(ask));
            }
            (Ok(()), true) => arriving.end(&origin.key),
            (Err(error), _) => Err(error),
        };
        let heard = match names {
            Ok(names) => {
                let names = Arc::new(names);
                origin.listed(path, &names);
                Heard::Names(names)
            }
            Err(NoListing::NoMemory) => Heard::Not(Status::Jukebox),
            Err(NoListing::TooLong) => {
                let why = "the listing of this folder has more names than NFS can keep";
                self.told = Some((Arc::clone(path), why.to_owned()));
                Heard::Not(Status::FBig)
            }
            Err(NoListing::Broken) => {
                let why = "the listing of this folder is none that NFS can read";
                self.told = Some((Arc::clone(path), why.to_owned()));
                Heard::Not(Status::Io)
            }
        };
        (Some(heard), None)
    }
}

/// Whether the answer to GET may be another one than this to HEAD: of an origin without ranges, only that has an object; others know
/// no HEAD.
fn needs_get(status: u16) -> bool {
    matches!(status, 200 | 206 | 400 | 405 | 501)
}

fn no_object(status: u16) -> String {
    match status {
        200 | 206 => "the origin's response can't be kept, so NFS can't read it: it lacks a length, a strong validator or ranges, or forbids it".to_owned(),
        300..400 => format!("the origin answers {status}, a redirect to elsewhere, which is not followed"),
        _ => format!("the origin answers {status}"),
    }
}

/// What an answer says of what is at the target of a file.
fn said(target: &[u8], answer: SiteAnswer) -> Said {
    match answer {
        SiteAnswer::Object(found) => Said::Is(Heard::Object(found.object)),
        SiteAnswer::Relayed { status, fields, .. } => {
            let is_folder = (300..400).contains(&status)
                && field(&fields, b"location").is_some_and(|place| leads_to_folder(place, target));
            match status_of(status) {
                _ if is_folder => Said::Is(Heard::Folder),
                Some(heard) => Said::Is(heard),
                None => Said::NoObject(status),
            }
        }
        answer => Said::Is(refused(&answer)),
    }
}

/// What a status says that is no success; `None`: nothing of use.
fn status_of(status: u16) -> Option<Heard> {
    match status {
        404 | 410 => Some(Heard::Missing),
        401 | 403 => Some(Heard::Not(Status::Acces)),
        408 | 425 | 429 | 500 | 502..=599 => Some(Heard::Not(Status::Jukebox)),
        _ => None,
    }
}

/// What the gateway itself says in place of an origin.
fn refused(answer: &SiteAnswer) -> Heard {
    match answer {
        SiteAnswer::NotFound => Heard::Missing,
        SiteAnswer::Forbidden(_) => Heard::Not(Status::Acces),
        // No origin answers, or too much is asked: clients try again.
        _ => Heard::Not(Status::Jukebox),
    }
}

/// The head of a listing.
fn begins(path: &[u8], through: Through, origin: &Origin) -> Result<Arriving, Heard> {
    if through.status != 200 {
        return Err(status_of(through.status).unwrap_or(Heard::Not(Status::Io)));
    }
    let content_type = field(&through.fields, b"content-type").unwrap_or_default();
    let is_plain = field(&through.fields, b"content-encoding").is_none();
    match format_of(content_type).filter(|_| is_plain) {
        Some(format) => {
            let at = origin.path_at_server(path);
            Ok(Arriving::new(through.pass, format, &at, &origin.budget))
        }
        None => Err(Heard::Not(Status::Io)),
    }
}

/// The value of the first line of this name.
fn field<'a>(lines: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut lines = lines.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        let (own, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        own.eq_ignore_ascii_case(name).then_some(value.trim_ascii())
    })
}

/// Whether a redirect leads to the same target with a slash behind it, be it whole, a path, or relative.
fn leads_to_folder(place: &[u8], target: &[u8]) -> bool {
    let end = place.iter().position(|byte| b"?#".contains(byte));
    let place = decode(&place[..end.unwrap_or(place.len())]);
    let mut folder = decode(target);
    folder.push(b'/');
    match place.contains(&b':') || place.starts_with(b"/") {
        true => place.ends_with(&folder),
        false => {
            let place = place.strip_prefix(b"./").unwrap_or(&place);
            place.len() > 1 && folder.ends_with(&[b"/", place].concat())
        }
    }
}

impl Origin {
    /// The question what is at the path of a file.
    fn opens(&self, path: &[u8], hint: Hint) -> Ask {
        Ask::Open(Asked {
            target: target_of(path, false, self.has_buckets()),
            hint,
            head: Box::default(),
            private: false,
            only_if_cached: false,
            chunked: false,
            index_of: None,
            lists: false,
        })
    }

    /// The question which names a folder has. A bucket's is answered by the gateway's own listing.
    fn lists(&self, path: &[u8]) -> Ask {
        let target = target_of(path, true, self.has_buckets());
        let shown = String::from_utf8_lossy(&target); // ASCII
        let head = format!(
            "GET {shown} HTTP/1.1\r\nHost: nfs\r\nAccept: application/json, text/html;q=0.9\r\n\r\n"
        );
        Ask::Open(Asked {
            target,
            hint: Hint::Span(0, u64::MAX),
            head: head.into_bytes().into(),
            private: true,
            only_if_cached: false,
            chunked: false,
            index_of: None,
            lists: true,
        })
    }

    /// The path of a folder at its server, as links in its listing may have it.
    fn path_at_server(&self, path: &[u8]) -> Vec<u8> {
        let base = self.gateway.origins.first().map_or("", |it| &it.base);
        [base.as_bytes(), &target_of(path, true, self.has_buckets())].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_to_the_same_path_with_a_slash_is_a_folder() {
        for place in [
            "/a/b%20c/",
            "http://other.example/pub/a/b%20c/",
            "/pub/a/b c/?x=y",
            "b%20c/",
            "./b c/",
        ] {
            assert!(leads_to_folder(place.as_bytes(), b"/a/b%20c"), "{place}");
        }
        for place in [
            "/a/b%20c",
            "/login",
            "/",
            "",
            "./",
            "/a/b%20c/index.html",
            "c/",
        ] {
            assert!(!leads_to_folder(place.as_bytes(), b"/a/b%20c"), "{place}");
        }
    }

    #[test]
    fn a_field_is_found_by_its_name() {
        let lines = b"Content-Type: text/html\r\nLOCATION:  /x/ \r\n";
        assert_eq!(field(lines, b"location"), Some(&b"/x/"[..]));
        assert_eq!(field(lines, b"content"), None);
    }
}
