//! RFC 9111 for a shared cache: whether an origin's response may be stored, and for how long it may be used.
//!
//! Times are seconds since 1970. Where a response contradicts itself, the stricter reading holds: an entry that is
//! revalidated too early costs a round trip, one that is used too long is wrong.

use super::date;
use super::fields::{Field, Fields, is_token_byte, members, trim};
use super::request::Request;
use super::response::Response;

/// Seconds of any directive and of Age (RFC 9111 section 1.2.2: 68 years). Above: this many.
const DELTA_S_MAX: u64 = 1 << 31;
/// Seconds for which a response is fresh that says nothing of it: section 4.2.2 asks for a warning above a day. Above:
/// this many.
const HEURISTIC_S_MAX: u64 = 86_400;
/// Names in Vary; origins send a handful, and each is looked for in each request. Above: the response counts as one
/// that varies by everything.
const VARY_NAMES_MAX: usize = 32;

/// What Cache-Control says, in a response or in a request (RFC 9111 section 5.2, RFC 5861). Directives are known in any
/// case; others are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// `no-store`
    pub no_store: bool,
    /// `no-cache`. With names of fields in it, it counts as one without.
    pub no_cache: bool,
    /// `private`. With names of fields in it, it counts as one without.
    pub private: bool,
    /// `must-revalidate` or `proxy-revalidate`
    pub must_revalidate: bool,
    /// `only-if-cached`, from clients: 504 rather than a request to the origin
    pub only_if_cached: bool,
    /// `max-age`. An invalid number counts as 0, in the next three too; of several, the least counts.
    pub max_age_s: Option<u64>,
    /// `s-maxage`
    pub s_maxage_s: Option<u64>,
    /// `stale-while-revalidate`
    pub stale_while_revalidate_s: Option<u64>,
    /// `stale-if-error`
    pub stale_if_error_s: Option<u64>,
}

impl CacheControl {
    /// Reads all Cache-Control lines.
    pub fn of(fields: &Fields<'_>) -> Self {
        let mut all = Self::default();
        for value in fields.values(Field::CacheControl) {
            for (name, argument) in (Directives { rest: value }) {
                all.note(name, argument);
            }
        }
        all
    }

    fn note(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
        self.no_store |= is("no-store");
        self.no_cache |= is("no-cache");
        self.private |= is("private");
        self.must_revalidate |= is("must-revalidate") || is("proxy-revalidate");
        self.only_if_cached |= is("only-if-cached");
        for (text, seconds) in [
            ("max-age", &mut self.max_age_s),
            ("s-maxage", &mut self.s_maxage_s),
            ("stale-while-revalidate", &mut self.stale_while_revalidate_s),
            ("stale-if-error", &mut self.stale_if_error_s),
        ] {
            if is(text) {
                let given = argument.and_then(delta_s).unwrap_or(0);
                *seconds = Some(seconds.map_or(given, |before| before.min(given)));
            }
        }
    }
}

/// The number of seconds in these digits, [`DELTA_S_MAX`] at most.
fn delta_s(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |seconds, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some((seconds * 10 + digit).min(DELTA_S_MAX))
    })
}

/// The directives of one line: name and argument, the latter without its quotes. A quote that nothing closes is an
/// ordinary byte, so it hides no directive behind it.
struct Directives<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Directives<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        while let [b' ' | b'\t' | b',', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return None;
        }
        let name_len = self.rest.iter().position(|&byte| !is_token_byte(byte));
        let (name, mut after) = self.rest.split_at(name_len.unwrap_or(self.rest.len()));
        let mut argument = None;
        if let [b'=', given @ ..] = after {
            let quoted = given.strip_prefix(b"\"");
            let quoted = quoted.and_then(|text| Some(text.split_at(quote_at(text)?)));
            (argument, after) = match quoted {
                Some((inner, rest)) => (Some(inner), rest),
                None => (given.split(|&byte| byte == b',').next().map(trim), given),
            };
        }
        let end = after.iter().position(|&byte| byte == b',');
        self.rest = &after[end.unwrap_or(after.len())..];
        Some((name, argument))
    }
}

/// The first quote that no backslash escapes.
fn quote_at(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|&byte| {
        let is_end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    })
}

/// Why a response may not be stored, or not for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStorable {
    /// It is neither a file, a part of one, nor the confirmation of one.
    Status,
    /// `no-store`
    NoStore,
    /// `private`
    Private,
    /// Set-Cookie: meant for one client, whatever else it says.
    SetCookie,
    /// `Vary: *`, or too many names.
    Vary,
}

impl NotStorable {
    /// One sentence for a person.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Status => "Its status is not 200, 206 or 304.",
            Self::NoStore => "Cache-Control says no-store.",
            Self::Private => "Cache-Control says private.",
            Self::SetCookie => "It sets a cookie.",
            Self::Vary => "Vary says that it depends on everything, or names too many fields.",
        }
    }
}

/// How a stored response may be used (RFC 9111 section 4.2, RFC 5861).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// As it is.
    Fresh,
    /// As it is, while the origin is asked whether it still holds.
    WhileRevalidating,
    /// Only once the origin has confirmed it.
    Revalidate,
}

/// What a response says of its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Why it may not be stored; `None`: it may.
    pub not_storable: Option<NotStorable>,
    /// The age up to which it is fresh; 0 with `no-cache`.
    pub fresh_for_s: u64,
    /// Its age when it was received.
    pub age_s: u64,
    /// How long it may be used beyond that while it is revalidated; `None`: the origin does not say.
    pub stale_while_revalidate_s: Option<u64>,
    /// How long it may be used beyond that if the origin fails; `None`: the origin does not say.
    pub stale_if_error_s: Option<u64>,
    /// True if it may never be used stale: the two above are then 0.
    pub must_revalidate: bool,
}

impl Freshness {
    /// What needs no second look.
    pub const FOR_EVER: Freshness = Freshness {
        not_storable: None,
        fresh_for_s: u64::MAX,
        age_s: 0,
        stale_while_revalidate_s: None,
        stale_if_error_s: None,
        must_revalidate: false,
    };

    /// What a response says that was asked for and received at these times.
    ///
    /// s-maxage counts before max-age, that before Expires, and that before a tenth of the time since Last-Modified.
    /// s-maxage forbids stale use (section 5.2.2.10) unless the origin allows it by a directive for that.
    pub fn of(response: &Response<'_>, asked_unix_s: u64, received_unix_s: u64) -> Self {
        let fields = response.fields();
        let control = CacheControl::of(fields);
        let date_unix_s = date_of(fields, Field::Date).unwrap_or(received_unix_s);
        let says_stale =
            control.stale_while_revalidate_s.is_some() || control.stale_if_error_s.is_some();
        let must_revalidate = control.no_cache
            || control.must_revalidate
            || control.s_maxage_s.is_some() && !says_stale;
        let stale_s = |said: Option<u64>| if must_revalidate { Some(0) } else { said };
        Self {
            not_storable: not_storable(response, &control),
            fresh_for_s: match control.no_cache {
                true => 0,
                false => fresh_for_s(fields, &control, date_unix_s),
            },
            age_s: age_s(fields, date_unix_s, asked_unix_s, received_unix_s),
            stale_while_revalidate_s: stale_s(control.stale_while_revalidate_s),
            stale_if_error_s: stale_s(control.stale_if_error_s),
            must_revalidate,
        }
    }

    /// What holds of a stored response once a 304 has confirmed it (section 4.3.4): what the 304 says of its storage, or
    /// what held before if it says nothing. Its age starts anew in both cases.
    pub fn renewed(
        &self,
        response: &Response<'_>,
        asked_unix_s: u64,
        received_unix_s: u64,
    ) -> Self {
        let new = Self::of(response, asked_unix_s, received_unix_s);
        let fields = [Field::CacheControl, Field::Expires];
        let speaks = fields.map(|field| response.fields().first(field).is_some());
        if speaks.contains(&true) || new.not_storable.is_some() {
            return new;
        }
        Self {
            age_s: new.age_s,
            ..*self
        }
    }

    /// Its age once it has been stored for `stored_s`: the value of Age.
    pub const fn age_after_s(&self, stored_s: u64) -> u64 {
        self.age_s.saturating_add(stored_s)
    }

    /// How it may be used once it has been stored for `stored_s`.
    pub fn use_after(&self, stored_s: u64) -> Use {
        if self.age_after_s(stored_s) < self.fresh_for_s {
            Use::Fresh
        } else if self.is_within(stored_s, self.stale_while_revalidate_s.unwrap_or(0)) {
            Use::WhileRevalidating
        } else {
            Use::Revalidate
        }
    }

    /// Whether it may be used once it has been stored for `stored_s` and the origin fails. `default_s` holds where the
    /// origin does not say.
    pub fn is_usable_on_error(&self, stored_s: u64, default_s: u64) -> bool {
        self.is_within(stored_s, self.stale_if_error_s.unwrap_or(default_s))
    }

    /// Whether it is fresh, or has been stale for less than `stale_s`.
    const fn is_within(&self, stored_s: u64, stale_s: u64) -> bool {
        self.age_after_s(stored_s) < self.fresh_for_s.saturating_add(stale_s)
    }
}

fn not_storable(response: &Response<'_>, control: &CacheControl) -> Option<NotStorable> {
    let fields = response.fields();
    let names = members(fields.values(Field::Vary)).take(VARY_NAMES_MAX + 1);
    let (names, stars) = names.fold((0, 0), |(names, stars), name| {
        (names + 1, stars + usize::from(name == b"*"))
    });
    if !matches!(response.status, 200 | 206 | 304) {
        Some(NotStorable::Status)
    } else if control.no_store {
        Some(NotStorable::NoStore)
    } else if control.private {
        Some(NotStorable::Private)
    } else if fields.first(Field::SetCookie).is_some() {
        Some(NotStorable::SetCookie)
    } else if stars > 0 || names > VARY_NAMES_MAX {
        Some(NotStorable::Vary)
    } else {
        None
    }
}

/// Section 4.2.1; a date that cannot be read lies in the past.
fn fresh_for_s(fields: &Fields<'_>, control: &CacheControl, date_unix_s: u64) -> u64 {
    if let Some(seconds) = control.s_maxage_s.or(control.max_age_s) {
        return seconds;
    }
    if fields.first(Field::Expires).is_some() {
        let expires_unix_s = date_of(fields, Field::Expires).unwrap_or(0);
        return expires_unix_s.saturating_sub(date_unix_s).min(DELTA_S_MAX);
    }
    let modified_unix_s = date_of(fields, Field::LastModified).unwrap_or(date_unix_s);
    (date_unix_s.saturating_sub(modified_unix_s) / 10).min(HEURISTIC_S_MAX)
}

/// Section 4.2.3; an Age that is no number is ignored, and of a list the first member counts (section 5.1).
fn age_s(fields: &Fields<'_>, date_unix_s: u64, asked_unix_s: u64, received_unix_s: u64) -> u64 {
    let said = members(fields.values(Field::Age)).next();
    let said_s = said.and_then(delta_s).unwrap_or(0);
    let delay_s = received_unix_s.saturating_sub(asked_unix_s);
    let apparent_s = received_unix_s.saturating_sub(date_unix_s);
    apparent_s.max(said_s.saturating_add(delay_s))
}

/// Whether a response that is no file may be given to all clients that wait for one at the same time: its status may be stored
/// without further word (RFC 9110 section 15.1) or is an error of the origin, and nothing says that it is for one of them.
pub fn is_for_all(response: &Response<'_>) -> bool {
    let fields = response.fields();
    let control = CacheControl::of(fields);
    let varies = members(fields.values(Field::Vary)).any(|name| !is_always_the_same(name));
    let by_status = matches!(
        response.status,
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 500..=599
    );
    let is_private = control.no_store || control.private || varies;
    by_status && !is_private && fields.first(Field::SetCookie).is_none()
}

/// Whether all requests of the gateway's own have the same field of this name.
fn is_always_the_same(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"accept-encoding") || name.eq_ignore_ascii_case(b"host")
}

/// The time in a field of one date; `None` also for one that is repeated or cannot be read.
pub fn date_of(fields: &Fields<'_>, field: Field) -> Option<u64> {
    date::parse(fields.single(field)?)
}

/// Whether `request` has a field that the values of Vary name, so that a response to a request without it may not be
/// used (RFC 9111 section 4.1). The gateway's own requests always have the same Accept-Encoding and Host.
pub fn varies_for<'a>(vary: impl Iterator<Item = &'a [u8]>, request: &Request<'_>) -> bool {
    members(vary).enumerate().any(|(nth, name)| {
        let is = |given: &[u8]| name.eq_ignore_ascii_case(given);
        let has = || request.fields().iter().any(|(given, _)| is(given));
        nth >= VARY_NAMES_MAX || name == b"*" || !is_always_the_same(name) && has()
    })
}

#[cfg(test)]
mod tests;
