//! Choosing among representations: content codings (RFC 9110 section 12.5.3) and HTML or JSON for
//! a listing (section 12.5.1).

use super::fields::{members, trim};

/// A content coding in which a precompressed file may stand beside the plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// zstd (RFC 8878), `.zst`
    Zstd,
    /// Brotli (RFC 7932), `.br`
    Brotli,
    /// gzip (RFC 1952), `.gz`
    Gzip,
}

impl Coding {
    /// Every coding, in the default order of the configuration.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// The name in Content-Encoding.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// The extension of the precompressed file, without its dot; also the mark in the entity tag.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Zstd => "zst",
            Self::Brotli => "br",
            Self::Gzip => "gz",
        }
    }

    /// `x-gzip` is gzip (RFC 9110 section 8.4.1.3).
    fn is_named(self, token: &[u8]) -> bool {
        token.eq_ignore_ascii_case(self.token().as_bytes())
            || self == Self::Gzip && token.eq_ignore_ascii_case(b"x-gzip")
    }
}

/// A weight in thousandths (RFC 9110 section 12.4.2).
type Weight = u16;

const FULL_WEIGHT: Weight = 1000;

/// The coding to send, out of those available (`offered`); `None` is the plain file.
///
/// The highest weight wins; among equals, the one offered first. The plain file wins only where the client
/// names it (or `*`) with a higher weight: unnamed it is acceptable, but a coding that the client asked for by
/// name is better. Without the field, the plain file is sent.
///
/// A client that excludes the plain file (`identity;q=0`, `*;q=0`) and accepts no available coding still gets
/// the plain file. Section 12.5.3 allows this instead of a 406, and a file that the client may not like is
/// better than none. nginx and Apache do the same.
pub fn choose_coding<'a>(
    accept_encoding: impl Iterator<Item = &'a [u8]> + Clone,
    offered: &[Coding],
) -> Option<Coding> {
    if offered.is_empty() {
        return None;
    }
    let weight_of = |is_named: &dyn Fn(&[u8]) -> bool| {
        let mut any = None;
        for (name, weight) in members(accept_encoding.clone()).filter_map(weighted) {
            if is_named(name) {
                return Some(weight);
            }
            if name == b"*" {
                any = any.or(Some(weight));
            }
        }
        any
    };
    let plain = weight_of(&|name| name.eq_ignore_ascii_case(b"identity")).unwrap_or(0);
    let mut best: Option<(Coding, Weight)> = None;
    for &coding in offered {
        let weight = weight_of(&|name| coding.is_named(name)).unwrap_or(0);
        if weight > best.map_or(0, |(_, best)| best) {
            best = Some((coding, weight));
        }
    }
    best.filter(|&(_, weight)| weight >= plain)
        .map(|(coding, _)| coding)
}

/// True if the client prefers `application/json` to `text/html`: its weight is higher, or it is equal and given
/// more specifically. A client without a preference gets HTML.
pub fn prefers_json<'a>(accept: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
    media_weight(accept.clone(), b"application/", b"json") > media_weight(accept, b"text/", b"html")
}

/// Weight, then specificity (RFC 9110 section 12.5.1: the most specific range decides the weight). Other
/// parameters than the weight are ignored.
fn media_weight<'a>(
    accept: impl Iterator<Item = &'a [u8]>,
    kind: &[u8],
    subtype: &[u8],
) -> (Weight, u8) {
    let mut best = (0, 0);
    for (range, weight) in members(accept).filter_map(weighted) {
        let in_kind = range
            .split_at_checked(kind.len())
            .filter(|(given, _)| given.eq_ignore_ascii_case(kind));
        let specificity = match in_kind {
            _ if range == b"*/*" => 1,
            Some((_, b"*")) => 2,
            Some((_, given)) if given.eq_ignore_ascii_case(subtype) => 3,
            _ => continue,
        };
        if specificity > best.1 {
            best = (weight, specificity);
        }
    }
    // An excluded type is excluded at any specificity.
    if best.0 == 0 { (0, 0) } else { best }
}

/// A member as name and weight. `None` if the weight is malformed: a guess could invert what the client meant.
fn weighted(member: &[u8]) -> Option<(&[u8], Weight)> {
    let mut pieces = member.split(|&byte| byte == b';').map(trim);
    let name = pieces.next()?;
    let mut weight = FULL_WEIGHT;
    for piece in pieces {
        if let [b'q' | b'Q', b'=', value @ ..] = piece {
            weight = parse_weight(value)?;
        }
    }
    Some((name, weight))
}

/// `0`, `0.123`, `1`, `1.000` (RFC 9110 section 12.4.2).
fn parse_weight(text: &[u8]) -> Option<Weight> {
    let (whole, decimals): (Weight, &[u8]) = match text {
        [whole @ (b'0' | b'1')] => (Weight::from(whole - b'0'), b""),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] => (Weight::from(whole - b'0'), decimals),
        _ => return None,
    };
    if decimals.len() > 3 || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let thousandths = (0..3).fold(0, |sum, nth| {
        sum * 10 + Weight::from(decimals.get(nth).map_or(0, |digit| digit - b'0'))
    });
    let weight = whole * FULL_WEIGHT + thousandths;
    (weight <= FULL_WEIGHT).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::Coding::{Brotli, Gzip, Zstd};
    use super::{Coding, choose_coding, parse_weight, prefers_json};
    use crate::http::testing::config;
    use proptest::prelude::*;

    fn chosen(value: &str, offered: &[Coding]) -> Option<Coding> {
        choose_coding([value.as_bytes()].into_iter(), offered)
    }

    #[test]
    fn the_highest_weight_wins_and_then_the_order_offered() {
        for (value, want) in [
            ("gzip", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("GZIP", Some(Gzip)),
            ("gzip, br, zstd", Some(Zstd)),
            ("gzip, deflate, br", Some(Brotli)),
            ("br;q=0.5, gzip;q=0.8", Some(Gzip)),
            ("br ; q=0.5 , gzip\t;\tQ=0.8", Some(Gzip)),
            ("*", Some(Zstd)),
            ("*;q=0.5, gzip", Some(Gzip)),
            ("zstd;q=0, *", Some(Brotli)),
            ("gzip;q=0.001", Some(Gzip)),
            ("gzip;q=0.5, identity", None),
            ("gzip, identity", Some(Gzip)),
            ("gzip;q=0.5, identity;q=0.5", Some(Gzip)),
        ] {
            assert_eq!(chosen(value, &Coding::ALL), want, "{value}");
        }
        assert_eq!(chosen("gzip, br, zstd", &[Gzip, Zstd]), Some(Gzip));
    }

    #[test]
    fn the_plain_file_is_sent_where_no_coding_is_acceptable_rfc_9110_section_12_5_3() {
        for value in [
            "",
            "identity",
            "deflate",
            "gzip;q=0",
            "*;q=0",
            "identity;q=0",
            "gzip;q=0.0, br;q=0, zstd;q=0.000",
            ",",
        ] {
            assert_eq!(chosen(value, &Coding::ALL), None, "{value}");
        }
        assert_eq!(choose_coding(std::iter::empty(), &Coding::ALL), None);
        assert_eq!(chosen("gzip", &[]), None);
        assert_eq!(
            chosen("identity;q=0", &[Gzip]),
            None,
            "not named, so not acceptable"
        );
    }

    #[test]
    fn several_lines_are_one_list() {
        let lines = [&b"gzip;q=0.1"[..], b"br"];
        assert_eq!(choose_coding(lines.into_iter(), &Coding::ALL), Some(Brotli));
    }

    #[test]
    fn a_member_with_a_malformed_weight_counts_for_nothing() {
        for value in [
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=.5",
            "gzip;q=-1",
            "gzip;q=",
            "gzip;q=0.1234",
            "gzip;q=1,5x",
        ] {
            let want = if value.contains("1,5x") {
                Some(Gzip)
            } else {
                None
            };
            assert_eq!(chosen(value, &[Gzip]), want, "{value}");
        }
    }

    #[test]
    fn json_is_for_those_who_ask_for_it_rfc_9110_section_12_5_1() {
        for (accept, json) in [
            ("application/json", true),
            ("APPLICATION/JSON;charset=utf-8", true),
            ("application/json, text/plain, */*", true),
            ("application/json, */*;q=0.8", true),
            ("application/*", true),
            ("text/html;q=0.5, application/json", true),
            ("*/*", false),
            ("", false),
            ("text/html", false),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                false,
            ),
            ("application/json, text/html", false),
            ("application/json;q=0.5, text/html", false),
            ("application/json;q=0", false),
            ("application/jsonx", false),
            ("text/*, application/json", true),
            ("image/png", false),
        ] {
            assert_eq!(
                prefers_json([accept.as_bytes()].into_iter()),
                json,
                "{accept}"
            );
        }
        assert!(!prefers_json(std::iter::empty()));
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn weights_are_thousandths(thousandths in 0u16..=1000) {
            let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
            prop_assert_eq!(parse_weight(text.as_bytes()), Some(thousandths));
        }

        #[test]
        fn only_what_lies_ready_and_is_named_is_chosen(
            value in "(gzip|br|zstd|identity|x-gzip|deflate|[*])?(;q=[01](\\.[0-9]{0,3})?)?(, ?(gzip|br|[*])(;q=0(\\.[05])?)?){0,3}",
            offered in proptest::sample::subsequence(Coding::ALL.to_vec(), 0..=3).prop_shuffle(),
        ) {
            if let Some(coding) = chosen(&value, &offered) {
                prop_assert!(offered.contains(&coding));
                prop_assert!(value.contains(coding.token()) || value.contains('*'));
            }
        }
    }
}
