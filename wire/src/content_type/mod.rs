//! The media type of a file, from its name alone.
//!
//! The sources, in order: the operator's `types` (the longest extension that matches: `tar.gz` before `gz`),
//! our corrections, the crate mime_guess, and a list of extensionless names that are known to be text. Any
//! other file is `application/octet-stream`. Case never matters. A compressed file gets the type of its
//! compression and no Content-Encoding: a client that asks for `a.tar.gz` wants that file. A few types mean what is
//! inside the compression, such as `image/svg+xml` for `.svgz`: [`coding`] tells.
//!
//! Text types carry `charset=utf-8`, as do JavaScript and JSON. XML types do not: the XML declaration names the
//! encoding, and a charset parameter would overrule it (RFC 7303 3.2).

mod table;

use std::collections::HashMap;

use crate::http::Coding;
use crate::limits::MEDIA_TYPE_BYTES_MAX;
use table::{CHARSET_UTF_8, EXTENSIONS, GZIPPED, TEXT_NAME_PREFIXES, TEXT_NAMES};

/// Bytes of an extension in the `types` table: it must fit in a file name. Above: refused at start.
const EXTENSION_BYTES_MAX: usize = 64;

/// The media type of a file of unknown type.
pub const UNKNOWN: &str = "application/octet-stream";

/// The media type for a file's name, fit for a Content-Type field. `name` may be a path; only the part after
/// the last `/` counts.
pub fn of<'a>(name: &[u8], overrides: &'a Overrides) -> &'a str {
    let name = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    // The last bytes of the name decide: the longest extension, its dot and one byte before it. Without that
    // byte, `.gz` would be an extension and not a hidden name.
    let mut lower = [0; EXTENSION_BYTES_MAX + 2];
    let tail = &name[name.len().saturating_sub(lower.len())..];
    let lower = &mut lower[..tail.len()];
    lower.copy_from_slice(tail);
    lower.make_ascii_lowercase();

    overrides
        .find(lower)
        .or_else(|| by_extension(lower))
        .unwrap_or_else(|| by_whole_name(name))
}

/// The content coding of a file with this name that is sent as this media type, as [`of`] found it: gzip for `.svgz` and
/// its like. The operator's own type wins: an `application/...` type, such as `application/gzip`, means the bytes as they
/// are.
pub fn coding(name: &[u8], media_type: &str) -> Option<Coding> {
    let extension = name.rsplit(|&byte| byte == b'.').next()?;
    let is_gzipped = GZIPPED
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known.as_bytes()));
    (is_gzipped && !media_type.starts_with("application/")).then_some(Coding::Gzip)
}

/// Extensions in `lower`, the longest first: `a.tar.gz` has `tar.gz` and `gz`.
fn extensions(lower: &[u8]) -> impl Iterator<Item = &str> {
    let dots = (1..lower.len()).filter(|&at| lower[at] == b'.');
    dots.filter_map(|dot| std::str::from_utf8(&lower[dot + 1..]).ok())
        .filter(|found| !found.is_empty())
}

fn by_extension(lower: &[u8]) -> Option<&'static str> {
    let last = extensions(lower).last()?;
    let own = EXTENSIONS.binary_search_by_key(&last, |&(extension, _)| extension);
    if let Ok(index) = own {
        return Some(EXTENSIONS[index].1);
    }
    let guessed = mime_guess::from_ext(last).first_raw()?;
    Some(with_charset(guessed))
}

fn with_charset(media_type: &'static str) -> &'static str {
    let found = CHARSET_UTF_8
        .binary_search_by_key(&media_type, |with| with.split(';').next().unwrap_or(with));
    found.map_or(media_type, |index| CHARSET_UTF_8[index])
}

fn by_whole_name(name: &[u8]) -> &'static str {
    let is_text = TEXT_NAMES
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
        || TEXT_NAME_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix.as_bytes()) && !name.contains(&b'.'));
    if is_text { table::TEXT } else { UNKNOWN }
}

/// The operator's own types by extension, checked.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    by_extension: HashMap<Box<str>, Box<str>>,
}

impl Overrides {
    /// Takes pairs of an extension without its leading dot (`gz`, or `tar.gz` with several parts) and a media
    /// type, which [`is_extension`] and [`is_media_type`] have accepted. Of equal extensions the last one counts.
    pub fn new<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> Overrides {
        let pairs = pairs.into_iter();
        let own = |(extension, media_type): (&str, &str)| {
            (extension.to_lowercase().into(), media_type.into())
        };
        Overrides {
            by_extension: pairs.map(own).collect(),
        }
    }

    fn find(&self, lower: &[u8]) -> Option<&str> {
        if self.by_extension.is_empty() {
            return None;
        }
        extensions(lower)
            .find_map(|extension| self.by_extension.get(extension))
            .map(|found| &**found)
    }
}

/// Whether this can be an extension: in ASCII, without a dot at either end.
pub fn is_extension(extension: &str) -> bool {
    (1..=EXTENSION_BYTES_MAX).contains(&extension.len())
        && extension.split('.').all(|part| !part.is_empty())
        && extension
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/')
}

/// Whether this is a media type with its parameters (RFC 9110 8.3.1).
pub fn is_media_type(media_type: &str) -> bool {
    media_type.len() <= MEDIA_TYPE_BYTES_MAX && has_type_syntax(media_type.as_bytes())
}

fn has_type_syntax(text: &[u8]) -> bool {
    let Some(rest) = after_token(text)
        .and_then(|rest| rest.strip_prefix(b"/"))
        .and_then(after_token)
    else {
        return false;
    };
    let mut rest = rest;
    while !rest.is_empty() {
        let parameter = rest
            .trim_ascii_start()
            .strip_prefix(b";")
            .map(<[u8]>::trim_ascii_start);
        let value = parameter
            .and_then(after_token)
            .and_then(|rest| rest.strip_prefix(b"="));
        let Some(after) =
            value.and_then(|value| after_token(value).or_else(|| after_quoted(value)))
        else {
            return false;
        };
        rest = after;
    }
    // trim_ascii_start would also strip line ends, which must not pass.
    text.iter()
        .all(|&byte| byte == b' ' || byte.is_ascii_graphic())
}

/// What follows the token (RFC 9110 5.6.2) at the start of `text`.
fn after_token(text: &[u8]) -> Option<&[u8]> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let len_bytes = text.iter().take_while(|byte| is_token(byte)).count();
    (len_bytes > 0).then(|| &text[len_bytes..])
}

/// What follows the quoted string (RFC 9110 5.6.4) at the start of `text`.
fn after_quoted(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text.strip_prefix(b"\"")?;
    loop {
        rest = match rest {
            [b'"', after @ ..] => return Some(after),
            [b'\\', _, after @ ..] | [_, after @ ..] => after,
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    fn plain(name: &str) -> String {
        of(name.as_bytes(), &Overrides::default()).to_owned()
    }

    #[test]
    fn what_people_serve_has_the_type_that_clients_expect() {
        for (name, media_type) in [
            ("bash.rpm", "application/x-rpm"),
            ("bash.deb", "application/vnd.debian.binary-package"),
            ("0001.ts", "video/mp2t"),
            ("live.m3u8", "application/vnd.apple.mpegurl"),
            ("live.mpd", "application/dash+xml"),
            ("0001.m4s", "video/iso.segment"),
            ("a.zst", "application/zstd"),
            ("a.tar.xz", "application/x-xz"),
            ("a.tar.gz", "application/gzip"),
            ("a.bz2", "application/x-bzip2"),
            ("debian.iso", "application/x-iso9660-image"),
            ("a.wasm", "application/wasm"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.json", "application/json; charset=utf-8"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("a.yaml", "application/yaml"),
            ("a.toml", "application/toml"),
            ("a.log", "text/plain; charset=utf-8"),
            ("index.html", "text/html; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.svg", "image/svg+xml"),
            ("a.xml", "text/xml"),
            ("a.flac", "audio/flac"),
            ("a.mkv", "video/x-matroska"),
            ("a.mp4", "video/mp4"),
            ("a.webm", "video/webm"),
            ("a.avif", "image/avif"),
            ("a.torrent", "application/x-bittorrent"),
            ("a.asc", "application/pgp-signature"),
            ("a.sig", "application/pgp-signature"),
            ("model.safetensors", UNKNOWN),
            ("model.gguf", UNKNOWN),
            ("disk.qcow2", "application/x-qemu-disk"),
            ("disk.img", UNKNOWN),
            ("a.br", UNKNOWN),
            ("t.parquet", "application/vnd.apache.parquet"),
            ("a.exe", UNKNOWN),
            ("a.nobodyknows", UNKNOWN),
        ] {
            assert_eq!(plain(name), media_type, "{name}");
        }
    }

    #[test]
    fn a_type_of_what_is_inside_gzip_has_a_coding() {
        let own = Overrides::new([("wrz", "application/gzip"), ("svgz", "image/svg+xml; a=b")]);
        let coding =
            |name: &str, types: &Overrides| coding(name.as_bytes(), of(name.as_bytes(), types));
        for (name, by_table, by_operator) in [
            ("plan.svgz", Some(Coding::Gzip), Some(Coding::Gzip)),
            ("a/PLAN.SVGZ", Some(Coding::Gzip), Some(Coding::Gzip)),
            ("world.wrz", Some(Coding::Gzip), None),
            ("scene.x3dz", Some(Coding::Gzip), Some(Coding::Gzip)),
            ("plan.svg", None, None),
            ("plan.svgz.gz", None, None),
            ("a.tgz", None, None),
            ("svgz", None, None), // no extension, so of no known type
        ] {
            assert_eq!(coding(name, &Overrides::default()), by_table, "{name}");
            assert_eq!(coding(name, &own), by_operator, "{name}");
        }
    }

    #[test]
    fn case_does_not_matter_and_folders_are_no_extensions() {
        assert_eq!(plain("A.JPG"), "image/jpeg");
        assert_eq!(plain("A.Tar.Zst"), "application/zstd");
        assert_eq!(plain("/v1.html/file"), UNKNOWN);
        assert_eq!(plain("/v1.html/file.css"), "text/css; charset=utf-8");
    }

    #[test]
    fn names_without_an_extension_are_text_if_they_are_known_to_be() {
        for name in [
            "README",
            "LICENSE",
            "Packages",
            "Release",
            "InRelease",
            "SHA256SUMS",
            "makefile",
            "Contents-amd64",
        ] {
            assert_eq!(plain(name), "text/plain; charset=utf-8", "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "a.",
            ".gz",
            "a..",
            "Contents-amd64.unknown",
            "readm",
        ] {
            assert_eq!(plain(name), UNKNOWN, "{name}");
        }
        assert_eq!(of(b"a.\xFF\xFE", &Overrides::default()), UNKNOWN);
        assert_eq!(
            of(b"\xFF\xFE.txt", &Overrides::default()),
            "text/plain; charset=utf-8"
        );
    }

    #[test]
    fn the_operators_types_win_and_the_longest_of_them_first() {
        let overrides = Overrides::new([
            ("gz", "a/gz"),
            ("tar.gz", "a/tar-gz"),
            ("TS", "text/x-typescript; charset=utf-8"),
            ("readme", "a/extension"),
        ]);
        for (name, media_type) in [
            ("x.gz", "a/gz"),
            ("x.tar.gz", "a/tar-gz"),
            ("x.y.TAR.GZ", "a/tar-gz"),
            ("x.star.gz", "a/gz"),
            (".tar.gz", "a/gz"), // a hidden file named `.tar`
            ("x.ts", "text/x-typescript; charset=utf-8"),
            ("README", "text/plain; charset=utf-8"),
            ("x.png", "image/png"),
        ] {
            assert_eq!(of(name.as_bytes(), &overrides), media_type, "{name}");
        }
    }

    #[test]
    fn the_longest_extension_allowed_is_found_in_a_long_name() {
        let extension = "e".repeat(EXTENSION_BYTES_MAX);
        let overrides = Overrides::new([(&*extension, "a/b")]);
        for (name, media_type) in [
            (format!("{}.{extension}", "n".repeat(150)), "a/b"),
            (format!("n.{extension}"), "a/b"),
            (format!(".{extension}"), UNKNOWN),
            (format!("n.e{extension}"), UNKNOWN),
        ] {
            assert_eq!(of(name.as_bytes(), &overrides), media_type);
        }
    }

    #[test]
    fn an_extension_has_no_dot_at_its_ends() {
        let long = "e".repeat(EXTENSION_BYTES_MAX + 1);
        for bad in ["", ".rpm", "rpm.", "tar..gz", "a/b", "a b", "ä", &long] {
            assert!(!is_extension(bad), "{bad}");
        }
        assert!(is_extension(&long[1..]) && is_extension("tar.gz"));
    }

    #[test]
    fn media_types_follow_the_grammar_of_rfc_9110() {
        for good in [
            "a/b",
            "application/vnd.api+json",
            "text/plain; charset=utf-8",
            "text/plain;charset=utf-8 ; x=\"a \\\" b\"",
        ] {
            assert!(is_media_type(good), "{good}");
        }
        let long = format!("a/{}", "b".repeat(MEDIA_TYPE_BYTES_MAX - 1));
        assert!(is_media_type(&long[..MEDIA_TYPE_BYTES_MAX]));
        for bad in [
            "",
            "a",
            "a/",
            "/b",
            "a/b/c",
            "a b/c",
            "a/b;",
            "a/b; ",
            "a/b; c",
            "a/b; c=",
            "a/b; c=\"d",
            "a/b\r\nX: y",
            "a/b;\r\n c=d",
            "a/b; c=\"\u{e9}\"",
            "a/b; c=\"\0\"",
            "a/b c",
            &long,
        ] {
            assert!(!is_media_type(bad), "{bad:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn any_name_has_a_valid_type(name: Vec<u8>, text in "[a-zA-Z0-9.]{0,90}") {
            let overrides = Overrides::new([("tar.gz", "a/b")]);
            for name in [&name, text.as_bytes()] {
                prop_assert!(is_media_type(of(name, &overrides)));
            }
        }
    }
}
