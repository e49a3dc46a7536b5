//! The listing as one small HTML page: no script, no external resources, readable in a text browser.
//!
//! All links are relative, so the page also works behind a proxy that serves it under another path.

use super::{Entry, README_BYTES_MAX, Readme};
use crate::civil::{Civil, push_decimal};
use crate::limits::LISTING_CRUMBS_MAX;
use crate::text::{push_html, push_html_lines, push_percent_encoded};

/// Names are isolated (`unicode-bidi`): a right-to-left name does not move its neighbours.
const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1c1e21;--dim:#5f6670;--line:#e3e5e8;--link:#0b57d0;--back:#fff;--hover:#f4f6f9}\
@media(prefers-color-scheme:dark){:root{--text:#e3e5e8;--dim:#9aa1ab;--line:#34383e;--link:#8ab4f8;--back:#17191c;\
--hover:#1f2226}}\
body{margin:0 auto;padding:1rem;max-width:70rem;background:var(--back);color:var(--text);\
font:1rem/1.5 system-ui,sans-serif}\
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}\
h1{font-size:1.25rem;font-weight:600;overflow-wrap:anywhere}\
h2{font-size:1rem;margin:2rem 0 .5rem}\
table{width:100%;table-layout:fixed;border-collapse:collapse}\
col.s{width:6.5rem}col.m{width:10rem}\
th{text-align:left;font-weight:600;color:var(--dim)}\
th,td{padding:.25rem .5rem;border-bottom:1px solid var(--line);vertical-align:top}\
tr:hover td{background:var(--hover)}\
td:first-child{overflow-wrap:anywhere;white-space:pre-wrap;unicode-bidi:isolate}\
.s,.m,td:nth-child(n+2){text-align:right;white-space:nowrap;color:var(--dim);font-variant-numeric:tabular-nums}\
.l:after{content:\" \\2197\";color:var(--dim)}\
footer{padding:.5rem;color:var(--dim)}\
pre{padding:1rem;border:1px solid var(--line);border-radius:.5rem;white-space:pre-wrap;overflow-wrap:anywhere;\
font:.875rem/1.5 ui-monospace,monospace}\
@media(max-width:40rem){body{padding:.5rem}col.s{width:5.25rem}col.m{width:6rem}\
.m,td:nth-child(3){white-space:normal;font-size:.8rem}th,td{padding:.4rem .25rem}}";

pub(super) fn head(path: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Index of ",
    );
    push_html(path, out);
    out.extend_from_slice(
        b"</title>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>",
    );
    out.extend_from_slice(STYLE.as_bytes());
    out.extend_from_slice(b"</style>\n</head>\n<body>\n<h1>Index of ");
    push_crumbs(path, out);
    out.extend_from_slice(
        b"</h1>\n<table>\n<colgroup><col><col class=\"s\"><col class=\"m\"></colgroup>\n\
          <thead><tr><th>Name</th><th class=\"s\">Size</th><th class=\"m\">Modified (UTC)</th></tr></thead>\n<tbody>\n",
    );
    if path != b"/" {
        out.extend_from_slice(b"<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
}

/// The path with a link on each directory above. Only the nearest few get one: for a path of thousands of
/// segments the links would be megabytes of `../`.
fn push_crumbs(path: &[u8], out: &mut Vec<u8>) {
    let segments = path
        .split(|&byte| byte == b'/')
        .filter(|segment| !segment.is_empty());
    let depth = segments.clone().count();
    let crumbs = std::iter::once(&b""[..]).chain(segments);
    for (at, segment) in crumbs.enumerate() {
        let levels_up = depth - at;
        let linked = levels_up != 0 && levels_up <= LISTING_CRUMBS_MAX;
        if linked {
            out.extend_from_slice(b"<a href=\"");
            (0..levels_up).for_each(|_| out.extend_from_slice(b"../"));
            out.extend_from_slice(b"\">");
        }
        push_html(segment, out);
        out.push(b'/');
        if linked {
            out.extend_from_slice(b"</a>");
        }
        if levels_up != 0 {
            out.extend_from_slice(b"<wbr>");
        }
    }
}

pub(super) fn entry(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let slash: &[u8] = if entry.kind.is_directory() { b"/" } else { b"" };
    out.extend_from_slice(b"<tr><td>");
    let fetchable = entry.kind != super::EntryKind::Other;
    if fetchable {
        out.extend_from_slice(if entry.kind.is_link() {
            b"<a class=\"l\" href=\""
        } else {
            b"<a href=\""
        });
        if entry.name.is_empty() {
            out.extend_from_slice(b"./"); // a slash alone leads to the root
        }
        push_percent_encoded(entry.name, out);
        out.extend_from_slice(slash);
        out.extend_from_slice(b"\">");
    }
    push_html(entry.name, out);
    out.extend_from_slice(slash);
    if fetchable {
        out.extend_from_slice(b"</a>");
    }
    out.extend_from_slice(b"</td><td");
    match (entry.len_bytes, entry.kind.is_directory()) {
        (Some(len_bytes), false) => {
            out.extend_from_slice(b" title=\"");
            push_decimal(len_bytes, out);
            out.extend_from_slice(b" bytes\">");
            push_readable(len_bytes, out);
        }
        _ => out.push(b'>'),
    }
    out.extend_from_slice(b"</td><td>");
    if let Some(modified_unix_s) = entry.modified_unix_s {
        push_time(modified_unix_s, out);
    }
    out.extend_from_slice(b"</td></tr>\n");
}

/// `999 B`, `9.8 KiB`, `384 MiB`: at most three digits below 1,024, rounded down so that no file looks larger
/// than it is.
fn push_readable(len_bytes: u64, out: &mut Vec<u8>) {
    const UNITS: [&[u8]; 7] = [b" B", b" KiB", b" MiB", b" GiB", b" TiB", b" PiB", b" EiB"];
    let power = len_bytes.checked_ilog2().unwrap_or(0) / 10;
    let unit_bytes = 1u64 << (10 * power);
    let whole = len_bytes / unit_bytes;
    push_decimal(whole, out);
    if power > 0 && whole < 10 {
        out.push(b'.');
        let tenth = u128::from(len_bytes % unit_bytes) * 10 / u128::from(unit_bytes);
        out.push(b'0' + tenth as u8);
    }
    out.extend_from_slice(UNITS[power as usize]);
}

fn push_time(unix_s: i64, out: &mut Vec<u8>) {
    let civil = Civil::from_unix_s(unix_s);
    out.extend_from_slice(b"<time datetime=\"");
    civil.push_rfc3339(out);
    out.extend_from_slice(b"Z\">");
    civil.push_date(out);
    out.push(b' ');
    civil.push_minutes(out);
    out.extend_from_slice(b"</time>");
}

pub(super) fn foot(readme: Option<Readme<'_>>, entry_count: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"</tbody>\n</table>\n<footer>");
    push_decimal(entry_count, out);
    out.extend_from_slice(if entry_count == 1 {
        b" entry"
    } else {
        b" entries"
    });
    out.extend_from_slice(b"</footer>\n");
    if let Some(readme) = readme {
        push_readme(readme, out);
    }
    out.extend_from_slice(b"</body>\n</html>\n");
}

fn push_readme(readme: Readme<'_>, out: &mut Vec<u8>) {
    let text = readme
        .text
        .strip_prefix("\u{FEFF}".as_bytes())
        .unwrap_or(readme.text);
    let shown = cut_at_char(text, README_BYTES_MAX);
    out.extend_from_slice(b"<section>\n<h2>");
    push_html(readme.name, out);
    out.extend_from_slice(b"</h2>\n<pre>\n"); // HTML drops the first line feed of a <pre>: give it one of ours
    push_html_lines(shown, out);
    out.extend_from_slice(b"</pre>\n");
    if shown.len() < text.len() {
        out.extend_from_slice(b"<p>Only the beginning is shown: <a href=\"");
        push_percent_encoded(readme.name, out);
        out.extend_from_slice(b"\">the whole file</a>.</p>\n");
    }
    out.extend_from_slice(b"</section>\n");
}

/// At most `len_bytes_max` bytes of `text`, never cut within a UTF-8 sequence.
fn cut_at_char(text: &[u8], len_bytes_max: usize) -> &[u8] {
    let Some(cut) = text.get(..len_bytes_max) else {
        return text;
    };
    if text.len() == len_bytes_max {
        return text;
    }
    // A sequence is 4 bytes at most: the byte after the cut continues one only if it is 10xxxxxx.
    let end = (len_bytes_max.saturating_sub(3)..=len_bytes_max)
        .rev()
        .find(|&at| text[at] & 0xC0 != 0x80);
    &cut[..end.unwrap_or(len_bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_to_read_and_never_rounded_up() {
        for (len_bytes, text) in [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10 * 1024 - 1, "9.9 KiB"),
            (10 * 1024, "10 KiB"),
            (1024 * 1024 - 1, "1023 KiB"),
            (384 << 20, "384 MiB"),
            (u64::MAX, "15 EiB"),
        ] {
            let mut out = Vec::new();
            push_readable(len_bytes, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }

    #[test]
    fn a_cut_text_does_not_end_in_half_a_character() {
        let text = "ab€".as_bytes(); // 5 bytes
        assert_eq!(cut_at_char(text, 5), text);
        assert_eq!(cut_at_char(text, 4), b"ab");
        assert_eq!(cut_at_char(text, 3), b"ab");
        assert_eq!(cut_at_char(text, 2), b"ab");
        assert_eq!(cut_at_char(text, 9), text);
        assert_eq!(
            cut_at_char(b"\x80\x80\x80\x80\x80\x80", 5),
            b"\x80\x80\x80\x80\x80"
        );
    }
}
