use super::{Item, Page, unescape, unix_s};
use crate::civil::Civil;
use crate::http::testing::config;
use proptest::prelude::*;

fn page(inner: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inner}</ListBucketResult>"
    )
}

fn parsed(inner: &str, prefix: &str) -> Result<Page, &'static str> {
    Page::parse(page(inner).as_bytes(), prefix)
}

#[test]
fn a_page_has_folders_files_and_where_it_goes_on() {
    let inner = "<Name>b</Name><Prefix>p/</Prefix><Delimiter>/</Delimiter><KeyCount>3</KeyCount>\
        <IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b</NextContinuationToken>\n\
        <Contents><Key>p/</Key><Size>0</Size></Contents>\
        <Contents><ETag>&quot;x&quot;</ETag><Key>p/ a&#x1;&lt;&#13;+%41</Key>\n<LastModified>2009-10-12T17:50:30.000Z</LastModified>\
        <Owner><ID>i</ID><DisplayName/></Owner><Size>434234</Size><StorageClass>STANDARD</StorageClass></Contents>\
        <CommonPrefixes><Prefix>p/sub/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>p//</Prefix></CommonPrefixes>";
    let folder = |name: &str| Item {
        name: name.to_owned(),
        is_folder: true,
        len_bytes: None,
        modified_unix_s: None,
    };
    let file = Item {
        name: " a\u{1}<\r+%41".to_owned(),
        is_folder: false,
        len_bytes: Some(434_234),
        modified_unix_s: Some(1_255_369_830),
    };
    let want = Page {
        items: vec![folder("sub"), folder(""), file],
        next: Some("a&b".to_owned()),
    };
    assert_eq!(parsed(inner, "p/"), Ok(want));
    assert_eq!(parsed("", ""), Ok(Page::default()));
}

#[test]
fn what_is_no_page_of_the_folder_is_refused() {
    for inner in [
        "<Contents><Key>other</Key></Contents>",
        "<Contents><Key>p/a/b</Key></Contents>",
        "<Contents></Contents>",
        "<CommonPrefixes><Prefix>p/a</Prefix></CommonPrefixes>",
        "<IsTruncated>true</IsTruncated>",
        "<Contents><Key>p/&x;</Key></Contents>",
        "<Contents><Key>p/&amp</Key></Contents>",
        "<!-- -->",
    ] {
        assert!(parsed(inner, "p/").is_err(), "{inner}");
    }
    let many = "<Contents><Key>p/a</Key></Contents>".repeat(1_001);
    assert!(parsed(&many, "p/").is_err());
    let whole = page("<Contents><Key>p/a</Key></Contents>");
    for len in 0..whole.len() {
        assert!(
            Page::parse(&whole.as_bytes()[..len], "p/").is_err(),
            "{len}"
        );
    }
    assert!(Page::parse(b"<Error><Code>x</Code></Error>", "p/").is_err());
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_time_is_the_one_that_is_shown(want in -62_000_000_000i64..253_000_000_000) {
        let mut text = Vec::new();
        Civil::from_unix_s(want).push_rfc3339(&mut text);
        prop_assert_eq!(unix_s(std::str::from_utf8(&text).expect("text")), Some(want));
    }

    #[test]
    fn no_text_causes_a_panic(text in "[<>/!&#;xT0-9:. a-zä-]{0,60}", prefix in "[a/]{0,3}") {
        let _ = (Page::parse(text.as_bytes(), &prefix), parsed(&text, &prefix), unescape(&text), unix_s(&text));
    }

    #[test]
    fn a_name_arrives_as_it_is(name in "[^/]{1,20}") {
        let escaped = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let page = parsed(&format!("<Contents><Key>{escaped}</Key></Contents>"), "").expect("a page");
        prop_assert_eq!(&page.items[0].name, &name);
    }
}
