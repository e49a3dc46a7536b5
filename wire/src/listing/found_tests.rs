use proptest::prelude::*;

use super::super::{Entry, EntryKind, entry, foot, head};
use super::*;

/// The names of a page, in pieces of this length; folders with their slash.
fn names_in(format: Format, path: &str, page: &[u8], piece: usize) -> Option<Vec<String>> {
    let mut reader = Reader::new(format, path.as_bytes());
    let mut names = Vec::new();
    for bytes in page.chunks(piece.max(1)) {
        reader.take(bytes, |named| {
            let slash = if named.is_folder { "/" } else { "" };
            names.push(String::from_utf8_lossy(named.name).into_owned() + slash);
        });
    }
    reader.is_whole().then_some(names)
}

#[track_caller]
fn html(path: &str, page: &str, want: &[&str]) {
    for piece in [1, 7, page.len()] {
        let names = names_in(Format::Html, path, page.as_bytes(), piece);
        assert_eq!(names.as_deref(), Some(&want.map_owned()[..]), "{piece}");
    }
}

trait Owned {
    fn map_owned(&self) -> Vec<String>;
}

impl Owned for &[&str] {
    fn map_owned(&self) -> Vec<String> {
        self.iter().map(|name| (*name).to_owned()).collect()
    }
}

#[test]
fn pages_of_the_servers_that_people_run() {
    html(
        "/pub/",
        "<html><head><title>Index of /pub/</title></head><body><h1>Index of /pub/</h1><hr><pre><a href=\"../\">../</a>\n\
         <a href=\"dists/\">dists/</a>   25-Jan-2026 11:26   -\n\
         <a href=\"a%20b%26c.txt\">a b&amp;c.txt</a>  25-Jan-2026 11:26  12\n</pre><hr></body></html>",
        &["dists/", "a b&c.txt"],
    );
    html(
        "/pub/",
        "<!-- <a href=\"not\">--><table><tr><th><a href=\"?C=N;O=D\">Name</a></th></tr>\n\
         <tr><td><img src=\"/icons/back.gif\" alt=\"[PARENTDIR]\"></td><td><a href=\"/\">Parent Directory</a></td></tr>\n\
         <tr><td><a href=\"x.iso\"><img src=\"/i.png\"></a></td><td><A class=l HREF='x.iso' title=\"a > b\">x.iso</A></td></tr>",
        &["x.iso", "x.iso"],
    );
    html(
        "/",
        "<style>a[href]:after{content:'<a href=\"no\">'}</style><script>x='<a href=\"no\">'</script>\n\
         <a href=\"./one/\"> <a href=/two> <a name=top href = \"three\" > <a href=\"&#x34;%2b\">",
        &["one/", "two", "three", "4+"],
    );
    html(
        "/a%20b/",
        "<a href=\"/a%20b/c\"><a href=\"/a b/d/\"><a href=\"/a/e\"><a href=\"f/g\"><a href=\"http://x/y\">\
         <a href=\"mailto:x\"><a href=\"//x/y\"><a href=\"\"><a href=\".\"><a href=\"..\"><a href=\"h%2Fi\"><a href=\"j%00\"><a href=\"#k\">",
        &["c", "d/"],
    );
}

#[test]
fn listings_in_json() {
    for (page, want) in [
        ("[]", Some(vec![])),
        (
            " [ { \"name\":\"d\", \"type\":\"directory\", \"mtime\":\"x\" },\n{ \"name\":\"f}\\\"\", \"type\":\"file\", \"size\":3 }, \
             {\"name\":\"o\",\"type\":\"other\"} ]\n",
            Some(vec!["d/", "f}\""]),
        ),
        (
            "[{\"name\":\"sub/\",\"is_dir\":true,\"url\":\"./sub/\"},{\"name\":\"x\",\"is_dir\":false}]",
            Some(vec!["sub/", "x"]),
        ),
        ("[{\"name\":\"cut\"}", None),
        ("{\"name\":\"x\"}", None),
        ("[1]", None),
        ("[{\"name\":}]", None),
        ("<html>", None),
    ] {
        for piece in [1, 5, page.len()] {
            let names = names_in(Format::Json, "/", page.as_bytes(), piece);
            let want = want.as_deref().map(|want| want.map_owned());
            assert_eq!(names, want, "{page}");
        }
    }
}

#[test]
fn what_never_ends_is_not_kept() {
    for (format, page) in [
        (Format::Html, "<a href=\""),
        (Format::Html, "<!--"),
        (Format::Html, "<script>"),
        (Format::Json, "[{\"name\":\""),
    ] {
        let mut reader = Reader::new(format, b"/");
        reader.take(page.as_bytes(), |_| {});
        for _ in 0..100 {
            reader.take(&[b'x'; 1000], |_| panic!("{page}"));
        }
        assert!(reader.rest.len() <= LISTING_PIECE_BYTES_MAX, "{page}");
    }
    let mut names = Vec::new();
    let mut reader = Reader::new(Format::Html, b"/");
    let page = format!(
        "<a href='{}<a href=\"b\">",
        "x".repeat(2 * LISTING_PIECE_BYTES_MAX)
    );
    reader.take(page.as_bytes(), |named| names.push(named.name.to_vec()));
    assert_eq!(names, [b"b"], "the next tag is found");
}

#[test]
fn the_content_type_tells_the_format() {
    assert_eq!(format_of(b"Text/HTML; charset=utf-8"), Some(Format::Html));
    assert_eq!(format_of(b"application/json"), Some(Format::Json));
    assert_eq!(format_of(b"text/plain"), None);
    assert_eq!(format_of(b""), None);
}

proptest! {
    #[test]
    fn own_listings_are_read_back(
        names in prop::collection::vec((prop::collection::vec(1u8.., 1..20), any::<bool>()), 0..20),
        piece in 1usize..300,
    ) {
        let names: Vec<_> = names
            .into_iter()
            .filter(|(name, _)| !name.contains(&b'/') && !matches!(&name[..], b"." | b".."))
            .collect();
        for format in [Format::Html, Format::Json] {
            let mut page = Vec::new();
            head(format, b"/some/folder/", &mut page);
            for (nth, (name, is_folder)) in names.iter().enumerate() {
                let kind = if *is_folder { EntryKind::Directory } else { EntryKind::File };
                let one = Entry { name, kind, len_bytes: Some(1), modified_unix_s: Some(1) };
                entry(format, nth == 0, &one, &mut page);
            }
            foot(format, None, names.len() as u64, &mut page);
            let mut reader = Reader::new(format, b"/some/folder/");
            let mut found = Vec::new();
            for bytes in page.chunks(piece) {
                reader.take(bytes, |named| found.push((named.name.to_vec(), named.is_folder)));
            }
            prop_assert!(reader.is_whole());
            prop_assert_eq!(&found, &names);
        }
    }
}
