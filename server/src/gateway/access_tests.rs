use ackpace_wire::http::Asked;
use jiff::Timestamp;

use super::{Access, Keys};
use crate::gateway::Address;
use crate::gateway::s3::Bucket;

/// The example of Amazon's documentation (Signature Version 4, query parameters).
const ID: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const WHEN_UNIX_S: i64 = 1_369_353_600;

fn access(endpoint: Option<&str>, variables: &[(&str, &str)]) -> Access {
    let variable = |name: &str| {
        let found = variables.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Access::of(endpoint, None, variable).expect("access")
}

fn keys() -> [(&'static str, &'static str); 2] {
    [("AWS_ACCESS_KEY_ID", ID), ("AWS_SECRET_ACCESS_KEY", SECRET)]
}

fn bucket(text: &str, access: &Access) -> (Address, Bucket) {
    let address = access.address(text).expect("a bucket");
    let bucket = address.bucket.clone().expect("a bucket");
    (address, bucket)
}

fn signed_for(bucket: &Bucket, path: &str, query: &[(&str, &str)], for_s: u64) -> String {
    let now = Timestamp::from_second(WHEN_UNIX_S).expect("a time");
    let target = bucket.signed_for(Asked::Get, path, query, (now, for_s));
    String::from_utf8(target.expect("a target")).expect("ASCII")
}

#[test]
fn the_place_of_a_bucket_is_in_the_path_or_in_the_name_of_the_host() {
    let amazon = access(None, &[("AWS_REGION", "eu-west-1")]);
    for (text, endpoint, authority, base) in [
        ("S3://bkt", None, "bkt.s3.eu-west-1.amazonaws.com", ""),
        (
            "s3://bkt/p q/",
            None,
            "bkt.s3.eu-west-1.amazonaws.com",
            "/p%20q",
        ),
        ("s3://a.b/p", None, "s3.eu-west-1.amazonaws.com", "/a.b/p"),
        ("s3://b/p", Some("http://[::1]:9000"), "[::1]:9000", "/b/p"),
        ("s3://A_b", Some("http://a"), "a", "/A_b"),
        (
            "s3://b",
            Some("https://s.example/api/s3/"),
            "s.example",
            "/api/s3/b",
        ),
    ] {
        let access = match endpoint {
            Some(_) => access(endpoint, &[]),
            None => amazon.clone(),
        };
        let (address, _) = bucket(text, &access);
        assert_eq!(
            (address.authority.as_str(), address.base.as_str()),
            (authority, base),
            "{text}"
        );
    }
    for text in [
        "s3://",
        "s3:///a",
        "s3://a b",
        "s3://..",
        "s3://a/../b",
        "s3://abc?x",
        "s3://abc/?x",
        "s3://abc/#x",
        "s3://u@a",
        "s3://My_Bucket",
        "s3://ab",
        "s3://-abc",
    ] {
        assert!(amazon.address(text).is_err(), "{text}");
    }
}

#[test]
fn a_request_is_signed_as_amazons_example() {
    let endpoint = "https://examplebucket.s3.amazonaws.com";
    let (_, bucket) = bucket("s3://examplebucket", &access(Some(endpoint), &keys()));
    let target = signed_for(&bucket, "/test.txt", &[], 86_400);
    let want = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
        &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
        &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
        &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    assert_eq!(target, want);
}

#[test]
fn odd_keys_and_queries_are_signed_as_botocore_signs_them() {
    let token = ("AWS_SESSION_TOKEN", "to/ken+=");
    let [id, secret] = keys();
    let page = [
        ("continuation-token", "t&+"),
        ("delimiter", "/"),
        ("list-type", "2"),
        ("prefix", "p q/\u{e4}+/"),
    ];
    for (variables, method, path, query, want) in [
        (
            &[id, secret][..],
            Asked::Get,
            "/b/p%20q//%2B%25%C3%A4%27~x",
            &[][..],
            "ab9f82ff33f0c270dea15263847aedd5b59b35b8c9e183f1326a420ac2bd6b36",
        ),
        (
            &[id, secret, token],
            Asked::Head,
            "/b/x",
            &[],
            "07139260a6489405946e2f041dce38ea35bc5aa6552ae0c5c9ba57d697c71188",
        ),
        (
            &[id, secret],
            Asked::Get,
            "/b/",
            &page,
            "cdec74fb879966c6257fa6064956f2d1f1f2a1acd82e9c06fcfe722dc634d333",
        ),
    ] {
        let (_, bucket) = bucket("s3://b", &access(Some("http://a:9000"), variables));
        let now = Timestamp::from_second(WHEN_UNIX_S).expect("a time");
        let target = bucket.signed(method, path, query, now).expect("a target");
        let target = String::from_utf8(target).expect("ASCII");
        assert!(
            target.starts_with(path) && target.ends_with(&format!("X-Amz-Signature={want}")),
            "{target}"
        );
    }
}

#[test]
fn a_page_of_a_folder_is_asked_for_by_its_prefix() {
    let (_, bucket) = bucket("s3://b/p q", &access(Some("http://a:9000"), &[]));
    let now = Timestamp::UNIX_EPOCH;
    let page = bucket.page(b"/d%2Be/", Some("t&"), now).expect("a target");
    let want = "/b/?continuation-token=t%26&delimiter=/&list-type=2&prefix=p%20q/d%2Be/";
    assert_eq!(String::from_utf8_lossy(&page), want);
}

#[test]
fn credentials_are_read_from_files_like_amazons() {
    let text = "[other]\naws_access_key_id = x\n[default]\n# a\naws_access_key_id=a\n aws_secret_access_key = b=c\n[z]\naws_session_token=t";
    let keys = Keys::parse(text);
    let got = (
        keys.id.as_deref(),
        keys.secret.as_deref(),
        keys.token.as_deref(),
    );
    assert_eq!(got, (Some("a"), Some("b=c"), None));
    let keys = Keys::parse("AWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\nAWS_SESSION_TOKEN=t\n");
    assert!(
        keys.token.as_deref() == Some("t") && keys.credentials().is_ok_and(|keys| keys.is_some())
    );
    assert!(
        Keys::parse("aws_secret_access_key=b")
            .credentials()
            .is_err()
    );
    assert!(
        Keys::default()
            .credentials()
            .is_ok_and(|keys| keys.is_none())
    );
}

#[test]
fn what_is_shown_of_a_bucket_has_no_secret() {
    let (address, bucket) = bucket("s3://bkt", &access(None, &keys()));
    let shown = format!("{bucket:?} {address:?}");
    assert!(!shown.contains(SECRET) && !shown.contains(ID), "{shown}");
}
