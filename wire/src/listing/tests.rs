use super::*;
use crate::limits::{LISTING_CRUMBS_MAX, LISTING_ENTRY_BYTES_MAX};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const FILE: Entry<'static> = Entry {
    name: b"a.txt",
    kind: EntryKind::File,
    len_bytes: Some(1_234_567),
    modified_unix_s: Some(784_111_777),
};

fn page(format: Format, path: &[u8], entries: &[Entry<'_>], readme: Option<Readme<'_>>) -> String {
    let mut out = Vec::new();
    head(format, path, &mut out);
    for (at, each) in entries.iter().enumerate() {
        entry(format, at == 0, each, &mut out);
    }
    foot(format, readme, entries.len() as u64, &mut out);
    String::from_utf8(out).expect("UTF-8 for any input")
}

fn row(entry: &Entry<'_>) -> String {
    let mut out = Vec::new();
    super::entry(Format::Html, false, entry, &mut out);
    String::from_utf8(out).expect("UTF-8 for any input")
}

fn hrefs(html: &str) -> Vec<&str> {
    html.split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

#[test]
fn a_file_has_its_link_exact_size_and_date() {
    assert_eq!(
        row(&FILE),
        "<tr><td><a href=\"a.txt\">a.txt</a></td><td title=\"1234567 bytes\">1.1 MiB</td>\
         <td><time datetime=\"1994-11-06T08:49:37Z\">1994-11-06 08:49</time></td></tr>\n"
    );
}

#[test]
fn a_directory_ends_with_a_slash_and_has_no_size() {
    let directory = Entry {
        name: b"sub",
        kind: EntryKind::Directory,
        modified_unix_s: None,
        ..FILE
    };
    assert_eq!(
        row(&directory),
        "<tr><td><a href=\"sub/\">sub/</a></td><td></td><td></td></tr>\n"
    );
    let link = Entry {
        kind: EntryKind::LinkToDirectory,
        ..directory
    };
    assert_eq!(
        row(&link),
        "<tr><td><a class=\"l\" href=\"sub/\">sub/</a></td><td></td><td></td></tr>\n"
    );
}

#[test]
fn what_cannot_be_fetched_is_named_without_a_link() {
    let fifo = Entry {
        name: b"fifo",
        kind: EntryKind::Other,
        len_bytes: None,
        modified_unix_s: None,
    };
    assert_eq!(row(&fifo), "<tr><td>fifo</td><td></td><td></td></tr>\n");
}

#[test]
fn names_that_look_like_something_else_in_a_link_stay_names() {
    for (name, href) in [
        (&b"a:b"[..], "a%3Ab"),
        (b"http:", "http%3A"),
        (b"?x", "%3Fx"),
        (b"#x", "%23x"),
        (b"%41", "%2541"),
        (b"a b+c", "a%20b%2Bc"),
        (b"..x", "..x"),
        (b"...", "..."),
        (b"a\\b", "a%5Cb"),
        (b"\"><script>", "%22%3E%3Cscript%3E"),
        (b"\xE9t\xE9", "%E9t%E9"), // Latin-1
        ("日本".as_bytes(), "%E6%97%A5%E6%9C%AC"),
    ] {
        let html = row(&Entry { name, ..FILE });
        assert_eq!(hrefs(&html), [href]);
    }
    let html = row(&Entry {
        name: b"\"><script>\n\xE9",
        ..FILE
    });
    assert!(
        html.contains(">&quot;&gt;&lt;script&gt;\u{FFFD}\u{FFFD}</a>"),
        "{html}"
    );
}

#[test]
fn the_heading_links_every_directory_above_relatively() {
    let html = page(Format::Html, b"/a b/<c>/d/", &[], None);
    assert!(html.contains(
        "<h1>Index of <a href=\"../../../\">/</a><wbr><a href=\"../../\">a b/</a><wbr>\
         <a href=\"../\">&lt;c&gt;/</a><wbr>d/</h1>"
    ));
    assert!(html.contains("<title>Index of /a b/&lt;c&gt;/d/</title>"));
    assert_eq!(hrefs(&html), ["../../../", "../../", "../", "../"]); // the last one is the row of the parent
    assert_eq!(hrefs(&page(Format::Html, b"/", &[], None)), [""; 0]);
}

#[test]
fn a_path_of_thousands_of_segments_gets_a_bounded_heading() {
    let path = format!("/{}", "a/".repeat(4_000));
    let html = page(Format::Html, path.as_bytes(), &[], None);
    assert_eq!(hrefs(&html).len(), LISTING_CRUMBS_MAX + 1);
    assert!(html.len() < 100_000, "{} bytes", html.len());
}

#[test]
fn the_readme_is_shown_escaped_below_and_cut_at_its_bound() {
    let readme = |text| {
        Some(Readme {
            name: b"README.md",
            text,
        })
    };
    let html = page(
        Format::Html,
        b"/",
        &[FILE],
        readme(b"\xEF\xBB\xBF\n# A <b>\r\n\xFF"),
    );
    assert!(
        html.contains("<h2>README.md</h2>\n<pre>\n\n# A &lt;b&gt;\n\u{FFFD}</pre>\n</section>"),
        "{html}"
    );
    assert!(
        html.find("</table>") < html.find("README.md"),
        "stands below the names"
    );

    let text = "x".repeat(README_BYTES_MAX + 1);
    let shown = |html: &str| {
        html.matches("x").count()
            - page(Format::Html, b"/", &[], readme(b""))
                .matches("x")
                .count()
    };
    let at = page(Format::Html, b"/", &[], readme(&text.as_bytes()[1..]));
    assert_eq!(shown(&at), README_BYTES_MAX);
    assert!(!at.contains("Only the beginning"));
    let above = page(Format::Html, b"/", &[], readme(text.as_bytes()));
    assert_eq!(shown(&above), README_BYTES_MAX);
    assert!(
        above.contains("Only the beginning is shown: <a href=\"README.md\">the whole file</a>")
    );
}

#[test]
fn the_readme_of_the_lowest_rank_is_the_best() {
    let mut names = [&b"README.rst"[..], b"readme.MD", b"Readme", b"README.txt"];
    names.sort_by_key(|name| readme_rank(name));
    assert_eq!(
        names,
        [&b"Readme"[..], b"README.txt", b"readme.MD", b"README.rst"]
    );
    for other in [&b"README.html"[..], b"readme2", b"READM", b""] {
        assert_eq!(readme_rank(other), None);
    }
}

#[test]
fn json_is_that_of_nginx() {
    let directory = Entry {
        name: b"sub",
        kind: EntryKind::Directory,
        len_bytes: Some(4_096),
        ..FILE
    };
    let fifo = Entry {
        name: b"a\"\\\n",
        kind: EntryKind::Other,
        ..FILE
    };
    assert_eq!(
        page(Format::Json, b"/", &[directory, FILE, fifo], None),
        "[\n\
         { \"name\":\"sub\", \"type\":\"directory\", \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\" },\n\
         { \"name\":\"a.txt\", \"type\":\"file\", \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\", \"size\":1234567 },\n\
         { \"name\":\"a\\\"\\\\\\n\", \"type\":\"other\", \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\" }\n\
         ]\n"
    );
    assert_eq!(page(Format::Json, b"/", &[], None), "[\n]\n");
}

#[test]
fn a_json_name_that_is_not_utf_8_can_still_be_reached() {
    let json = page(
        Format::Json,
        b"/",
        &[Entry {
            name: b"\xE9t\xE9",
            ..FILE
        }],
        None,
    );
    let read: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
    assert_eq!(read[0]["name"], "\u{FFFD}t\u{FFFD}");
    assert_eq!(read[0]["href"], "%E9t%E9");
}

fn any_kind() -> impl Strategy<Value = EntryKind> {
    prop_oneof![
        Just(EntryKind::Directory),
        Just(EntryKind::File),
        Just(EntryKind::LinkToDirectory),
        Just(EntryKind::LinkToFile),
        Just(EntryKind::Other),
    ]
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("not in a name", |byte| ![0, b'/'].contains(byte));
    proptest::collection::vec(byte, 1..=255)
        .prop_filter("no name", |name| name != b"." && name != b"..")
}

/// Resolves a relative reference without `..` against a directory, as RFC 3986 5.2 does, and decodes it.
fn resolve(href: &str) -> Vec<u8> {
    assert!(
        !href.contains([':', '?', '#']) && !href.starts_with('/'),
        "{href} is not a plain name"
    );
    percent_encoding::percent_decode_str(href).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn each_name_has_one_link_that_leads_to_exactly_that_name(name in any_name(), kind in any_kind()) {
        let html = row(&Entry { name: &name, kind, ..FILE });
        let wanted = match kind {
            EntryKind::Other => vec![],
            EntryKind::Directory | EntryKind::LinkToDirectory => vec![[&name[..], b"/"].concat()],
            EntryKind::File | EntryKind::LinkToFile => vec![name.clone()],
        };
        prop_assert_eq!(hrefs(&html).into_iter().map(resolve).collect::<Vec<_>>(), wanted);
        prop_assert_eq!(html.lines().count(), 1, "one line");
    }

    #[test]
    fn an_entry_keeps_to_its_bound(
        name in any_name(), kind in any_kind(), len_bytes: Option<u64>, modified_unix_s: Option<i64>,
    ) {
        for format in [Format::Html, Format::Json] {
            let mut out = Vec::new();
            entry(format, false, &Entry { name: &name, kind, len_bytes, modified_unix_s }, &mut out);
            prop_assert!(out.len() <= LISTING_ENTRY_BYTES_MAX);
        }
    }

    #[test]
    fn any_listing_is_valid_json_with_all_names_in_order(
        names in proptest::collection::vec(any_name(), 0..5), kind in any_kind(), modified_unix_s: Option<i64>,
    ) {
        let entries: Vec<Entry<'_>> =
            names.iter().map(|name| Entry { name, kind, modified_unix_s, len_bytes: None }).collect();
        let read: serde_json::Value =
            serde_json::from_str(&page(Format::Json, b"/", &entries, None)).expect("valid JSON");
        let read: Vec<_> = read.as_array().expect("an array").iter().map(|each| each["name"].as_str()).collect();
        let wanted: Vec<String> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        prop_assert_eq!(read, wanted.iter().map(|name| Some(&**name)).collect::<Vec<_>>());
    }

    #[test]
    fn any_path_and_readme_leave_the_page_well_formed(path: Vec<u8>, name in any_name(), text: Vec<u8>) {
        let path = [b"/", &path[..], b"/"].concat();
        let html = page(Format::Html, &path, &[FILE], Some(Readme { name: &name, text: &text }));
        for (tag, count) in [("<html", 1), ("</html>", 1), ("<pre>", 1), ("</pre>", 1), ("</h1>", 1), ("<script", 0)] {
            prop_assert_eq!(html.matches(tag).count(), count, "{}", tag);
        }
    }
}

#[test]
fn the_worst_names_keep_to_the_bound() {
    for byte in [0x01, b'"', b'\'', b'&', 0xFF, b'a'] {
        for (format, kind) in [
            (Format::Html, EntryKind::LinkToFile),
            (Format::Json, EntryKind::LinkToDirectory),
        ] {
            let mut out = Vec::new();
            let name = [byte; 255];
            entry(
                format,
                false,
                &Entry {
                    name: &name,
                    kind,
                    len_bytes: Some(u64::MAX),
                    ..FILE
                },
                &mut out,
            );
            assert!(
                out.len() <= LISTING_ENTRY_BYTES_MAX,
                "{byte:#x}: {} bytes",
                out.len()
            );
        }
    }
}
