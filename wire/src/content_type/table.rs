//! Our corrections and additions to mime_guess.

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
const BINARY: &str = super::UNKNOWN;
const JAVASCRIPT: &str = "text/javascript; charset=utf-8"; // RFC 9239
const MP2T: &str = "video/mp2t";

/// By extension, sorted. Types are those of the IANA registry where it has one, else the common `x-` name.
pub(super) const EXTENSIONS: &[(&str, &str)] = &[
    ("adoc", TEXT),
    ("bat", TEXT),
    ("br", BINARY),
    ("buildinfo", TEXT),
    ("c", TEXT),
    ("cc", TEXT),
    ("cfg", TEXT),
    ("changes", TEXT),
    ("cjs", JAVASCRIPT),
    ("conf", TEXT),
    ("cpp", TEXT),
    ("deb", "application/vnd.debian.binary-package"),
    ("diff", TEXT),
    ("dsc", TEXT),
    ("dtb", BINARY), // a device tree; mime_guess says DTBook, an XML format of talking books
    ("flatpak", "application/vnd.flatpak"),
    ("go", TEXT),
    ("h", TEXT),
    ("hpp", TEXT),
    ("img", BINARY),
    ("ini", TEXT),
    ("ipynb", "application/x-ipynb+json"),
    ("iso", "application/x-iso9660-image"),
    ("java", TEXT),
    ("js", JAVASCRIPT),
    ("json", "application/json; charset=utf-8"),
    ("jsonl", "application/jsonl"),
    ("jxl", "image/jxl"),
    ("key", BINARY),
    ("kt", TEXT),
    ("log", TEXT),
    ("lz4", "application/x-lz4"),
    ("lzma", "application/x-lzma"),
    ("m2ts", MP2T),
    ("m3u8", "application/vnd.apple.mpegurl"), // RFC 8216 10
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("map", "application/json; charset=utf-8"), // source maps of JavaScript and CSS
    ("md", "text/markdown; charset=utf-8"),     // RFC 7763
    ("md5", TEXT),
    ("mjs", JAVASCRIPT),
    ("mts", MP2T),
    ("patch", TEXT),
    ("php", TEXT), // never run here, so at least readable
    ("pl", TEXT),
    ("ps1", TEXT),
    ("pub", TEXT), // a public key; mime_guess says MS Publisher
    ("py", TEXT),
    ("qcow2", "application/x-qemu-disk"),
    ("rb", TEXT),
    ("rpm", "application/x-rpm"),
    ("rs", TEXT),
    ("rst", TEXT),
    ("sh", TEXT),
    ("sha1", TEXT),
    ("sha256", TEXT),
    ("sha512", TEXT),
    ("snap", "application/vnd.snap"),
    ("sql", TEXT),
    ("sqlite", "application/vnd.sqlite3"),
    ("squashfs", "application/vnd.squashfs"),
    ("srt", "application/x-subrip"),
    ("swift", TEXT),
    ("tbz", "application/x-bzip2"),
    ("tbz2", "application/x-bzip2"),
    ("tgz", "application/gzip"),
    ("toml", "application/toml"),
    ("ts", MP2T), // TypeScript is rarely served and never run; say so in `types` where it is
    ("txz", "application/x-xz"),
    ("tzst", "application/zstd"),
    ("udeb", "application/vnd.debian.binary-package"),
    ("whl", "application/zip"),
    ("yaml", "application/yaml"), // RFC 9512
    ("yml", "application/yaml"),
    ("zst", "application/zstd"), // RFC 8878
];

/// Extensions whose type in mime_guess is that of the content, while the bytes are gzip.
pub(super) const GZIPPED: &[&str] = &["svgz", "wrz", "x3dbz", "x3dvz", "x3dz"];

/// The textual types of mime_guess with their charset, sorted.
pub(super) const CHARSET_UTF_8: &[&str] = &[
    "application/javascript; charset=utf-8",
    "application/json; charset=utf-8",
    "text/cache-manifest; charset=utf-8",
    "text/calendar; charset=utf-8",
    "text/coffeescript; charset=utf-8",
    "text/css; charset=utf-8",
    "text/csv; charset=utf-8",
    "text/dlm; charset=utf-8",
    "text/gemini; charset=utf-8",
    "text/h323; charset=utf-8",
    "text/html; charset=utf-8",
    "text/iuls; charset=utf-8",
    "text/jade; charset=utf-8",
    "text/javascript; charset=utf-8",
    "text/less; charset=utf-8",
    "text/markdown; charset=utf-8",
    "text/n3; charset=utf-8",
    "text/plain; charset=utf-8",
    "text/prs.lines.tag; charset=utf-8",
    "text/richtext; charset=utf-8",
    "text/scriptlet; charset=utf-8",
    "text/sgml; charset=utf-8",
    "text/shex; charset=utf-8",
    "text/slim; charset=utf-8",
    "text/stylus; charset=utf-8",
    "text/tab-separated-values; charset=utf-8",
    "text/turtle; charset=utf-8",
    "text/uri-list; charset=utf-8",
    "text/vbscript; charset=utf-8",
    "text/vcard; charset=utf-8",
    "text/vnd.curl; charset=utf-8",
    "text/vnd.curl.dcurl; charset=utf-8",
    "text/vnd.curl.mcurl; charset=utf-8",
    "text/vnd.curl.scurl; charset=utf-8",
    "text/vnd.dvb.subtitle; charset=utf-8",
    "text/vnd.fly; charset=utf-8",
    "text/vnd.fmi.flexstor; charset=utf-8",
    "text/vnd.graphviz; charset=utf-8",
    "text/vnd.in3d.3dml; charset=utf-8",
    "text/vnd.in3d.spot; charset=utf-8",
    "text/vnd.sun.j2me.app-descriptor; charset=utf-8",
    "text/vnd.wap.wml; charset=utf-8",
    "text/vnd.wap.wmlscript; charset=utf-8",
    "text/vtt; charset=utf-8",
    "text/webviewhtml; charset=utf-8",
    "text/x-c; charset=utf-8",
    "text/x-component; charset=utf-8",
    "text/x-fortran; charset=utf-8",
    "text/x-gherkin; charset=utf-8",
    "text/x-handlebars-template; charset=utf-8",
    "text/x-hdml; charset=utf-8",
    "text/x-html-insertion; charset=utf-8",
    "text/x-lua; charset=utf-8",
    "text/x-markdown; charset=utf-8",
    "text/x-ms-contact; charset=utf-8",
    "text/x-ms-group; charset=utf-8",
    "text/x-ms-iqy; charset=utf-8",
    "text/x-ms-rqy; charset=utf-8",
    "text/x-nfo; charset=utf-8",
    "text/x-opml; charset=utf-8",
    "text/x-pascal; charset=utf-8",
    "text/x-processing; charset=utf-8",
    "text/x-rust; charset=utf-8",
    "text/x-sass; charset=utf-8",
    "text/x-scss; charset=utf-8",
    "text/x-setext; charset=utf-8",
    "text/x-sfv; charset=utf-8",
    "text/x-suse-ymp; charset=utf-8",
    "text/x-toml; charset=utf-8",
    "text/x-uuencode; charset=utf-8",
    "text/x-vcard; charset=utf-8",
    "text/x-yaml; charset=utf-8",
];

/// Files without an extension that are text: notes beside software, and the indices of package archives.
pub(super) const TEXT_NAMES: &[&str] = &[
    "AUTHORS",
    "CHANGELOG",
    "CHANGES",
    "CHECKSUM",
    "CHECKSUMS",
    "CONTRIBUTING",
    "COPYING",
    "COPYRIGHT",
    "Dockerfile",
    "HISTORY",
    "INSTALL",
    "InRelease",
    "LICENCE",
    "LICENSE",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "MD5SUMS",
    "MAINTAINERS",
    "Makefile",
    "NEWS",
    "NOTICE",
    "Packages",
    "README",
    "Release",
    "SHA1SUMS",
    "SHA256SUMS",
    "SHA512SUMS",
    "Sources",
    "THANKS",
    "TODO",
    "VERSION",
];

/// Beginnings of such names.
pub(super) const TEXT_NAME_PREFIXES: &[&str] = &["Contents-", "Translation-"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content_type::{is_extension, is_media_type};

    #[test]
    fn the_tables_are_sorted_and_well_formed() {
        assert!(
            EXTENSIONS.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "EXTENSIONS is not sorted"
        );
        let bare = |with: &str| with.split(';').next().map(str::to_owned);
        assert!(
            CHARSET_UTF_8
                .windows(2)
                .all(|pair| bare(pair[0]) < bare(pair[1])),
            "CHARSET_UTF_8 is not sorted"
        );
        for (extension, media_type) in EXTENSIONS {
            assert!(is_extension(extension), "{extension}");
            assert_eq!(
                *extension,
                extension.to_lowercase(),
                "is looked up in lower case"
            );
            assert!(is_media_type(media_type), "{extension}");
        }
    }

    #[test]
    fn every_text_type_of_mime_guess_has_a_charset_unless_it_is_xml() {
        let extensions =
            mime_guess::get_mime_extensions_str("text/*").expect("a known kind of media");
        for extension in extensions {
            let guessed = mime_guess::from_ext(extension)
                .first_raw()
                .expect("a known extension");
            let is_xml = ["text/xml", "text/mathml"].contains(&guessed);
            let known = CHARSET_UTF_8.contains(&&*format!("{guessed}; charset=utf-8"));
            assert!(
                !guessed.starts_with("text/") || known != is_xml,
                "{guessed} (.{extension})"
            );
        }
    }
}
