//! Hidden names: glob patterns for single path segments, compiled once.
//!
//! A pattern is matched against each segment of a path, whole and case-sensitive: `*` matches any run of
//! characters, including none, `?` exactly one, and every other character itself (so `[` and `\` are plain). A
//! character is a UTF-8 sequence, or a single byte where the name is not UTF-8.

/// Bytes of a `hide` pattern. A file name has at most 255 bytes, so a longer pattern can only be a mistake.
/// Above: refused at start.
const HIDE_PATTERN_BYTES_MAX: usize = 255;

/// Compiled patterns. Matching allocates nothing and takes at most name length x pattern length steps per pattern.
#[derive(Clone, Debug, Default)]
pub struct Hide {
    patterns: Vec<Vec<Token>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// `?`
    One,
    /// `*`; never two in a row.
    Any,
    /// One byte of a literal.
    Byte(u8),
}

impl Hide {
    /// Compiles `patterns`. An empty list hides nothing. `None`: one is empty, longer than any name, or
    /// holds a `/` or a NUL, which no name has.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Option<Hide> {
        let patterns = patterns.iter().map(|pattern| compile(pattern.as_ref()));
        Some(Hide {
            patterns: patterns.collect::<Option<_>>()?,
        })
    }

    /// True if any segment of `path` matches any pattern. `path` is decoded; a single name is a path too.
    pub fn hidden(&self, path: &[u8]) -> bool {
        path.split(|&byte| byte == b'/')
            .filter(|segment| !segment.is_empty())
            .any(|segment| {
                self.patterns
                    .iter()
                    .any(|pattern| matches(pattern, segment))
            })
    }
}

fn compile(pattern: &str) -> Option<Vec<Token>> {
    let fits = (1..=HIDE_PATTERN_BYTES_MAX).contains(&pattern.len());
    if !fits || pattern.contains(['/', '\0']) {
        return None;
    }
    let mut tokens = Vec::with_capacity(pattern.len());
    for byte in pattern.bytes() {
        match byte {
            b'*' if tokens.last() == Some(&Token::Any) => {}
            b'*' => tokens.push(Token::Any),
            b'?' => tokens.push(Token::One),
            byte => tokens.push(Token::Byte(byte)),
        }
    }
    Some(tokens)
}

/// True if the whole of `name` matches. On a mismatch only the last `*` takes one more character: each earlier
/// one already matched at its leftmost place, which leaves the most text for the rest, so retrying it cannot
/// help.
fn matches(pattern: &[Token], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None; // after the last `*`: pattern position, name position
    loop {
        match pattern.get(p) {
            None if n == name.len() => return true,
            Some(Token::Any) => {
                p += 1;
                retry = Some((p, n));
                continue;
            }
            Some(Token::One) if n < name.len() => {
                (p, n) = (p + 1, n + char_len_bytes(&name[n..]));
                continue;
            }
            Some(Token::Byte(byte)) if name.get(n) == Some(byte) => {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            _ => {}
        }
        match retry {
            Some((after, from)) if from < name.len() => {
                n = from + char_len_bytes(&name[from..]);
                p = after;
                retry = Some((after, n));
            }
            _ => return false,
        }
    }
}

/// Length of the character at the start of `bytes` (not empty): that of a valid UTF-8 sequence, else 1.
fn char_len_bytes(bytes: &[u8]) -> usize {
    let len_bytes = match bytes[0] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return 1,
    };
    match bytes.get(..len_bytes) {
        Some(sequence) if std::str::from_utf8(sequence).is_ok() => len_bytes,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;
    use proptest::test_runner::RngSeed;

    fn hides(pattern: &str, path: &str) -> bool {
        Hide::new(&[pattern])
            .expect("a good pattern")
            .hidden(path.as_bytes())
    }

    #[test]
    fn a_pattern_hides_a_whole_segment_wherever_it_stands() {
        assert!(hides(".git", "/.git"));
        assert!(hides(".git", "/a/.git/config"));
        assert!(hides(".git", ".git"));
        assert!(!hides(".git", "/.gitignore"));
        assert!(!hides(".git", "/x.git"));
        assert!(!hides(".git", "/.GIT"));
        assert!(!hides("*", "/"));
        assert!(hides("*", "/a"));
    }

    #[test]
    fn the_usual_patterns_hide_what_people_mean() {
        for (pattern, yes, no) in [
            (".env*", ".env.local", "x.env"),
            ("*~", "a.html~", "~a"),
            (".*.sw?", ".a.txt.swp", "a.swp"),
            (".ht*", ".htpasswd", "ht"),
            ("#*#", "#a#", "#a"),
            ("*.bak", "x.bak", "x.bak.gz"),
            (".*_history", ".bash_history", "my_history"),
            (".git-credentials", ".git-credentials", ".gitignore"),
        ] {
            assert!(hides(pattern, yes), "{pattern} shall hide {yes}");
            assert!(!hides(pattern, no), "{pattern} shall not hide {no}");
        }
    }

    #[test]
    fn brackets_and_backslashes_are_plain() {
        assert!(hides("[a]", "[a]") && !hides("[a]", "a"));
        assert!(hides("\\*", "\\x") && !hides("\\*", "*"));
    }

    #[test]
    fn a_question_mark_is_one_character_and_not_one_byte() {
        assert!(hides("?", "é") && hides("?", "€") && hides("?", "𝄞"));
        assert!(!hides("??", "é") && !hides("*??", "€"));
        let one = Hide::new(&["?"]).expect("a good pattern");
        assert!(one.hidden(b"\xFF") && !one.hidden(b"\xFF\xFE") && !one.hidden(b"\xE2\x82"));
    }

    #[test]
    fn what_matches_no_name_is_refused() {
        let long = "a".repeat(HIDE_PATTERN_BYTES_MAX + 1);
        for bad in ["", "a/b", "\0", &long] {
            assert!(Hide::new(&["a", bad]).is_none(), "{bad:?}");
        }
        assert!(Hide::new(&[&long[1..]]).is_some());
    }

    #[test]
    fn many_stars_take_a_product_of_lengths_and_not_a_power() {
        // A matcher that tries every division of the name among the stars would practically never finish here.
        let pattern = "*a".repeat(120) + "*b";
        assert!(!hides(&pattern, &"a".repeat(255)));
    }

    /// The meaning of a pattern, written for clarity and not for speed.
    fn naive(pattern: &[char], name: &[&[u8]]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, rest) => rest.is_none(),
            (Some(('*', pattern_rest)), None) => naive(pattern_rest, name),
            (Some(('*', pattern_rest)), Some((_, name_rest))) => {
                naive(pattern_rest, name) || naive(pattern, name_rest)
            }
            (Some(_), None) => false,
            (Some((want, pattern_rest)), Some((got, name_rest))) => {
                (*want == '?' || want.to_string().as_bytes() == *got)
                    && naive(pattern_rest, name_rest)
            }
        }
    }

    fn chars(mut bytes: &[u8]) -> Vec<&[u8]> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let len_bytes = (1..=bytes.len().min(4))
                .find(|&len| std::str::from_utf8(&bytes[..len]).is_ok())
                .unwrap_or(1);
            let (first, rest) = bytes.split_at(len_bytes);
            all.push(first);
            bytes = rest;
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_the_naive_matcher(pattern in "[ab€é*?]{1,8}", name in proptest::collection::vec(
            select(vec![b"a".to_vec(), b"b".to_vec(), "€".into(), "é".into(), vec![0xE2], vec![0x82], vec![0xAC]]),
            1..10,
        )) {
            let name = name.concat();
            let pattern_chars: Vec<char> = pattern.chars().collect();
            prop_assert_eq!(
                Hide::new(&[&pattern]).expect("a good pattern").hidden(&name),
                naive(&pattern_chars, &chars(&name)),
                "pattern {:?} name {:?}", pattern, name
            );
        }
    }
}
