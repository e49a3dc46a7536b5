use super::*;

const PREFIX: &str = "/ackpace/media";

fn entry() -> Entry {
    Entry {
        addr: "192.0.2.2:7800".parse().expect("an address"),
        key: [7; KEY_BYTES],
        version: 1,
    }
}

fn pair(key: &str, value: &str) -> String {
    let quoted = |text: &str| base64::encode(text.as_bytes());
    format!(
        "{{\"key\":\"{}\",\"mod_revision\":\"5\",\"value\":\"{}\",\"lease\":\"9\"}}",
        quoted(key),
        quoted(value)
    )
}

fn answer(pairs: &[String]) -> String {
    format!(
        "{{\"header\":{{\"revision\":\"12\"}},\"kvs\":[{}]}}",
        pairs.join(",")
    )
}

#[test]
fn a_listing_has_the_nodes_and_the_drains_below_its_prefix() {
    let text = entry().text();
    let answer = answer(&[
        pair("/ackpace/media/nodes/b", &text),
        pair("/ackpace/media/nodes/a", "rubbish"),
        pair("/ackpace/media/drains/b", "1"),
        pair("/ackpace/media/nodes/b/c", &text),
        pair("/ackpace/media/nodes/", &text),
        pair("/ackpace/media/nodes/off", &text),
        pair("/ackpace/media/flows/b", &text),
        pair("/ackpace/mediab", &text),
        pair(&format!("/ackpace/media/nodes/{}", "x".repeat(64)), &text),
        "{\"key\":\"###\",\"value\":7}".to_owned(),
    ]);
    let listing = listing(PREFIX, answer.as_bytes()).expect("an answer");
    let listed = |name: &str, entry| Listed {
        name: name.to_owned(),
        entry,
        revision: 5,
        lease: 9,
    };
    assert_eq!(listing.revision, 12);
    assert_eq!(
        listing.nodes,
        [listed("a", None), listed("b", Some(entry()))]
    );
    assert_eq!(listing.drains, ["b"]);
}

#[test]
fn an_empty_etcd_has_an_empty_listing() {
    let empty = listing(PREFIX, b"{\"header\":{\"revision\":\"1\"}}");
    assert_eq!(empty.map(|it| (it.revision, it.nodes.len())), Ok((1, 0)));
}

#[test]
fn what_is_no_answer_is_no_list() {
    let many = vec![pair("/x", ""); ETCD_ENTRIES_MAX + 1];
    let cut = answer(&[pair("/ackpace/media/nodes/b", "")]);
    for (bad, why) in [
        (String::new(), BadAnswer::Json),
        ("[".repeat(4000), BadAnswer::Json),
        (cut[..cut.len() - 1].to_owned(), BadAnswer::Json),
        ("[]".to_owned(), BadAnswer::Field("revision")),
        ("{}".to_owned(), BadAnswer::Field("revision")),
        (
            "{\"error\":\"x\",\"code\":14}".to_owned(),
            BadAnswer::Field("revision"),
        ),
        (
            "{\"header\":{\"revision\":\"1\"},\"kvs\":7}".to_owned(),
            BadAnswer::Field("kvs"),
        ),
        (
            "{\"header\":{\"revision\":\"1\"},\"more\":true}".to_owned(),
            BadAnswer::Many,
        ),
        (answer(&many), BadAnswer::Many),
        (" ".repeat(ETCD_ANSWER_BYTES_MAX + 1), BadAnswer::Long),
    ] {
        assert_eq!(listing(PREFIX, bad.as_bytes()), Err(why), "{bad:.60}");
    }
}

#[test]
fn an_entry_is_an_address_a_key_and_a_version() {
    let text = entry().text();
    assert_eq!(Entry::parse(&text), Some(entry()));
    let later = Entry::parse(&format!("{text},more"));
    assert_eq!(later, Some(entry()), "a later version tells more");
    let key = base64::encode(&[7; KEY_BYTES]);
    for bad in [
        "".to_owned(),
        format!("192.0.2.2:7800,{key}"),
        format!("192.0.2.2:7800,{key},x"),
        format!("0.0.0.0:7800,{key},1"),
        format!("192.0.2.2:0,{key},1"),
        format!("192.0.2.2:65535,{key},1"),
        format!("b.example:7800,{key},1"),
        format!("192.0.2.2:7800,{key}A,1"),
        "192.0.2.2:7800,AAAA,1".to_owned(),
    ] {
        assert_eq!(Entry::parse(&bad), None, "{bad}");
    }
}

#[test]
fn answers_about_leases_and_writing() {
    assert_eq!(lease(b"{\"ID\":\"7587\",\"TTL\":\"10\"}"), Ok(7587));
    assert_eq!(lease(b"{\"ID\":\"0\"}"), Err(BadAnswer::Field("ID")));
    assert_eq!(
        goes_on(b"{\"result\":{\"ID\":\"3\",\"TTL\":\"10\"}}"),
        Ok(true)
    );
    assert_eq!(
        goes_on(b"{\"result\":{\"ID\":\"3\"}}"),
        Ok(false),
        "it is over"
    );
    assert_eq!(goes_on(b"{\"error\":{}}"), Err(BadAnswer::Field("ID")));
    let header = "\"header\":{\"revision\":\"3\"}";
    let written = |more: &str| is_written(format!("{{{header}{more}}}").as_bytes());
    assert_eq!(written(",\"succeeded\":true"), Ok(true));
    assert_eq!(written(""), Ok(false), "what is false is left out");
    assert_eq!(is_written(b"{}"), Err(BadAnswer::Field("revision")));
    let told = error_of(b"{\"error\":\"no\\u001b[2J leader\",\"code\":14}");
    assert_eq!(told.as_deref(), Some("no[2J leader"));
}

#[test]
fn questions_are_json() {
    let (key, drain) = (node_key(PREFIX, "b"), drain_key(PREFIX, "b"));
    for question in [
        ask_listing(PREFIX),
        ask_watch(PREFIX, 7),
        ask_lease(10),
        ask_more(u64::MAX),
        ask_write(&key, 0, &entry().text(), 7),
        ask_put(&drain, "1"),
        ask_delete(&drain),
    ] {
        assert!(json(question.as_bytes()).is_ok(), "{question}");
    }
    let asked = json(ask_listing("/a/m").as_bytes()).expect("JSON");
    assert_eq!(text(&asked["key"], 99).as_deref(), Some("/a/m/"));
    assert_eq!(text(&asked["range_end"], 99).as_deref(), Some("/a/m0"));
}
