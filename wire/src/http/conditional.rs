//! Preconditions (RFC 9110 section 13): does the client already have this representation, or an older one that
//! it must not mix with it?

use super::date;
use super::etag::{self, ETag, Times};
use super::fields::Field;
use super::request::{Method, Request};

/// The validators that preconditions are compared with. There is none that cannot tell versions apart.
#[derive(Clone, Copy, Debug)]
pub struct Validators {
    /// The tag of the selected representation.
    pub etag: Option<ETag>,
    /// Its Last-Modified as sent, in seconds since 1970: never after the time of the answer.
    pub last_modified_unix_s: Option<u64>,
    /// True if there is one, and an equal date proves that nothing changed since (RFC 9110 section 8.8.2.2).
    pub last_modified_is_strong: bool,
}

impl Validators {
    /// The validators of a file of `len_bytes`, last modified at these times and sent in `coding` at
    /// `now_unix_s`.
    ///
    /// Last-Modified is never later than the answer (section 8.8.2.1).
    pub fn new(
        times: &Times,
        len_bytes: u64,
        coding: Option<super::Coding>,
        now_unix_s: u64,
    ) -> Self {
        let modified_unix_s = u64::try_from(times.modified_unix_s).ok();
        let last_modified_unix_s = modified_unix_s
            .filter(|_| times.has_mtime())
            .map(|modified_unix_s| modified_unix_s.min(now_unix_s));
        let old =
            last_modified_unix_s.is_some_and(|date_s| now_unix_s - date_s >= etag::WEAK_FOR_S);
        Self {
            etag: ETag::new(times, len_bytes, coding, now_unix_s),
            last_modified_unix_s,
            last_modified_is_strong: old && !times.is_fresh(now_unix_s),
        }
    }

    /// The validators that an origin sent, with the Date of its response. Last-Modified is strong if it lies at least a
    /// minute before Date (RFC 9110 section 8.8.2.2).
    pub fn foreign(
        etag: Option<ETag>,
        last_modified_unix_s: Option<u64>,
        date_unix_s: Option<u64>,
    ) -> Self {
        const STRONG_AFTER_S: u64 = 60;
        let age_s = date_unix_s
            .zip(last_modified_unix_s)
            .map(|(date_s, modified_s)| date_s.saturating_sub(modified_s));
        Self {
            etag,
            last_modified_unix_s,
            last_modified_is_strong: age_s.is_some_and(|age_s| age_s >= STRONG_AFTER_S),
        }
    }
}

/// The result of the preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer as if there were none. Range is still to be evaluated.
    Proceed,
    /// 304
    NotModified,
    /// 412
    Failed,
}

/// Evaluates If-Match, If-Unmodified-Since, If-None-Match and If-Modified-Since in the order of RFC 9110
/// section 13.2.2, for a representation that exists and would be sent with a 2xx. Where it has no date, conditions on dates
/// are ignored (sections 13.1.3 and 13.1.4).
pub fn evaluate(request: &Request<'_>, validators: &Validators) -> Verdict {
    let reads = matches!(request.method, Method::Get | Method::Head);
    let tag = validators.etag.as_ref();
    let is_by = |value: &[u8]| Some(validators.last_modified_unix_s? <= date::parse(value)?);
    // Steps 1 and 2
    let unchanged = match any_matches(request, Field::IfMatch, |given| {
        tag.is_some_and(|tag| given.is_strongly(tag))
    }) {
        Some(matches) => matches,
        None => request
            .if_unmodified_since()
            .and_then(is_by)
            .unwrap_or(true),
    };
    if !unchanged {
        return Verdict::Failed;
    }
    // Steps 3 and 4
    let known = match any_matches(request, Field::IfNoneMatch, |given| {
        tag.is_some_and(|tag| given.is_weakly(tag))
    }) {
        Some(true) if !reads => return Verdict::Failed,
        Some(matches) => matches,
        None if reads => request.if_modified_since().and_then(is_by).unwrap_or(false),
        None => false,
    };
    if known {
        Verdict::NotModified
    } else {
        Verdict::Proceed
    }
}

/// Step 5: may the server honour the client's Range? Without If-Range, true. With it, true only if the tag
/// matches strongly, or if the date equals Last-Modified and that date is a strong validator (RFC 9110 section
/// 13.1.5). Otherwise the client gets the whole file.
pub fn range_holds(request: &Request<'_>, validators: &Validators) -> bool {
    let Some(value) = request.if_range() else {
        return true;
    };
    // If-Range holds a single tag: anything but an exact match is another version.
    if let Some(tag) = validators.etag.filter(|tag| value == tag.opaque()) {
        return !tag.is_weak();
    }
    validators.last_modified_is_strong && date::parse(value) == validators.last_modified_unix_s
}

/// `None` without the field; true for `*`, or if `is_ours` holds for one of the tags.
fn any_matches(
    request: &Request<'_>,
    field: Field,
    is_ours: impl Fn(&etag::Given<'_>) -> bool,
) -> Option<bool> {
    request.fields().first(field)?;
    let mut values = request.fields().values(field);
    Some(values.any(|value| value == b"*" || etag::given(value).any(|given| is_ours(&given))))
}

#[cfg(test)]
mod tests {
    use super::{Times, Validators, Verdict, evaluate, range_holds};
    use crate::http::testing::{get, request};

    const MODIFIED: i64 = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT
    const TAG: &str = "\"2ebc98a1-3e8\"";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Tue, 19 Jan 2038 03:14:07 GMT";

    fn validators() -> Validators {
        Validators::new(&Times::of(MODIFIED), 1000, None, 1_000_000_000)
    }

    fn verdict(lines: &[(&str, &str)]) -> Verdict {
        evaluate(&request(&head(lines)), &validators())
    }

    fn head(lines: &[(&str, &str)]) -> Vec<u8> {
        let line = |(name, value): &(&str, &str)| format!("{name}: {value}\r\n");
        get(&lines.iter().map(line).collect::<String>())
    }

    #[test]
    fn without_preconditions_the_file_is_sent() {
        let tag = validators().etag.expect("a tag");
        assert_eq!(std::str::from_utf8(tag.opaque()), Ok(TAG));
        assert_eq!(verdict(&[]), Verdict::Proceed);
    }

    #[test]
    fn if_match_compares_strongly_and_if_none_match_weakly_rfc_9110_sections_13_1_1_and_2() {
        let weak = format!("W/{TAG}");
        let list = format!("\"a\", \"b,c\" ,\t{TAG}");
        for (value, strongly, weakly) in [
            (TAG, true, true),
            ("*", true, true),
            (list.as_str(), true, true),
            (weak.as_str(), false, true),
            ("\"a\"", false, false),
            ("", false, false),
        ] {
            let failed = verdict(&[("If-Match", value)]) == Verdict::Failed;
            assert_eq!(failed, !strongly, "{value}");
            let known = verdict(&[("If-None-Match", value)]) == Verdict::NotModified;
            assert_eq!(known, weakly, "{value}");
        }
        let second_line = [("If-None-Match", "\"a\""), ("If-None-Match", TAG)];
        assert_eq!(verdict(&second_line), Verdict::NotModified);
    }

    #[test]
    fn dates_compare_to_the_second_and_bad_ones_are_ignored() {
        for (value, since, until) in [
            (SAME, Verdict::NotModified, Verdict::Proceed),
            (BEFORE, Verdict::Proceed, Verdict::Failed),
            (AFTER, Verdict::NotModified, Verdict::Proceed),
            (
                "Sunday, 06-Nov-94 08:49:37 GMT",
                Verdict::NotModified,
                Verdict::Proceed,
            ),
            ("nonsense", Verdict::Proceed, Verdict::Proceed),
            ("", Verdict::Proceed, Verdict::Proceed),
        ] {
            assert_eq!(verdict(&[("If-Modified-Since", value)]), since, "{value}");
            assert_eq!(verdict(&[("If-Unmodified-Since", value)]), until, "{value}");
        }
        let twice = [("If-Modified-Since", SAME), ("If-Modified-Since", SAME)];
        assert_eq!(
            verdict(&twice),
            Verdict::Proceed,
            "RFC 9110 section 13.1.3: one member"
        );
    }

    /// Every combination of the four fields, against the five steps written down as one table.
    #[test]
    fn precedence_is_that_of_rfc_9110_section_13_2_2() {
        let dates = [None, Some(BEFORE), Some(SAME)];
        let tags = [None, Some("\"a\""), Some(TAG)];
        for im in tags {
            for ius in dates {
                for inm in tags {
                    for ims in dates {
                        let fields = [
                            ("If-Modified-Since", ims),
                            ("If-None-Match", inm),
                            ("If-Unmodified-Since", ius),
                            ("If-Match", im),
                        ];
                        let lines: Vec<_> = fields
                            .iter()
                            .filter_map(|(name, value)| value.map(|value| (*name, value)))
                            .collect();
                        let want = match (im, ius, inm, ims) {
                            (Some("\"a\""), ..) | (None, Some(BEFORE), ..) => Verdict::Failed,
                            (_, _, Some(TAG), _) | (_, _, None, Some(SAME)) => Verdict::NotModified,
                            _ => Verdict::Proceed,
                        };
                        assert_eq!(verdict(&lines), want, "{lines:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn if_range_needs_the_very_same_version_rfc_9110_section_13_1_5() {
        let weak = format!("W/{TAG}");
        let two = format!("{TAG}, \"a\"");
        let holds = |lines: &[(&str, &str)], validators: &Validators| {
            range_holds(&request(&head(lines)), validators)
        };
        for (value, want) in [
            (TAG, true),
            (SAME, true),
            (weak.as_str(), false),
            (two.as_str(), false),
            ("\"a\"", false),
            ("W/,\"2ebc98a1-3e8\"", false),
            (BEFORE, false),
            (AFTER, false),
            ("*", false),
            ("wrong", false),
            ("", false),
        ] {
            assert_eq!(
                holds(&[("If-Range", value)], &validators()),
                want,
                "{value}"
            );
        }
        assert!(holds(&[], &validators()));
        assert!(!holds(
            &[("If-Range", TAG), ("If-Range", TAG)],
            &validators()
        ));
        let fresh = Validators::new(&Times::of(MODIFIED), 1000, None, MODIFIED as u64 + 1);
        for value in [TAG, SAME] {
            assert!(
                !holds(&[("If-Range", value)], &fresh),
                "{value} may still change"
            );
        }
    }

    #[test]
    fn last_modified_is_never_after_the_answer_rfc_9110_section_8_8_2_1() {
        let at = |modified, now| {
            Validators::new(&Times::of(modified), 1, None, now).last_modified_unix_s
        };
        assert_eq!(at(101, 100), Some(100));
        assert_eq!(at(99, 100), Some(99));
        assert!(!Validators::new(&Times::of(1000), 1, None, 100).last_modified_is_strong);
        assert!(Validators::new(&Times::of(98), 1, None, 100).last_modified_is_strong);
    }

    #[test]
    fn an_origins_date_is_strong_a_minute_before_its_response() {
        let strong =
            |modified, date| Validators::foreign(None, modified, date).last_modified_is_strong;
        assert!(strong(Some(40), Some(100)));
        assert!(!strong(Some(41), Some(100)) && !strong(Some(900), Some(100)));
        assert!(!strong(None, Some(100)) && !strong(Some(40), None));
    }

    #[test]
    fn a_file_whose_mtime_says_nothing_has_no_date_and_no_condition_on_it_holds() {
        const EPOCH: &str = "Thu, 01 Jan 1970 00:00:00 GMT";
        for modified in [i64::MIN, -1, 0, 1] {
            // With a tag of inode and ctime, and without any.
            for changed_unix_s in [MODIFIED, 0] {
                let times = Times {
                    changed_unix_s,
                    ..Times::of(modified)
                };
                let validators = Validators::new(&times, 1000, None, 1_000_000_000);
                assert_eq!(validators.last_modified_unix_s, None);
                for (name, value, want) in [
                    ("If-Modified-Since", AFTER, Verdict::Proceed),
                    ("If-Modified-Since", EPOCH, Verdict::Proceed),
                    ("If-Unmodified-Since", EPOCH, Verdict::Proceed),
                    ("If-Unmodified-Since", BEFORE, Verdict::Proceed),
                    ("If-None-Match", "\"0-3e8\"", Verdict::Proceed),
                    ("If-None-Match", "*", Verdict::NotModified),
                    ("If-Match", "\"0-3e8\"", Verdict::Failed),
                    ("If-Match", "*", Verdict::Proceed),
                ] {
                    let head = head(&[(name, value)]);
                    let got = evaluate(&request(&head), &validators);
                    assert_eq!(got, want, "{name}: {value}");
                }
                for value in [EPOCH, "wrong", "\"0-3e8\""] {
                    let head = head(&[("If-Range", value)]);
                    assert!(!range_holds(&request(&head), &validators), "{value}");
                }
            }
        }
        let times = Times {
            changed_unix_s: MODIFIED,
            ..Times::of(0)
        };
        let validators = Validators::new(&times, 1000, None, 1_000_000_000);
        let head = head(&[("If-Range", "\"i0-2ebc98a1.0-3e8\"")]);
        assert!(range_holds(&request(&head), &validators), "a strong tag");
    }
}
