//! Who is a node of the cluster, as etcd tells it: what is asked of its JSON gateway (`/v3/...`), and what its answers say.
//! Nothing else of an answer is read, and no answer is longer than [`ETCD_ANSWER_BYTES_MAX`].
//!
//! Below the prefix of a cluster stand `nodes/NAME` with `ADDR,KEY,VERSION`, and `drains/NAME` of each node that is to be emptied.

use std::net::SocketAddr;

use serde_json::Value;

use crate::base64;
use crate::limits::{
    CLUSTER_NAME_BYTES_MAX, ETCD_ANSWER_BYTES_MAX, ETCD_ENTRIES_MAX, ETCD_VALUE_BYTES_MAX,
};

/// Bytes of a node's public key.
const KEY_BYTES: usize = 32;

/// Why an answer tells nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAnswer {
    /// It is longer than [`ETCD_ANSWER_BYTES_MAX`].
    Long,
    /// It is no JSON.
    Json,
    /// It lacks a field, or that has a value that it can't have.
    Field(&'static str),
    /// It has more than [`ETCD_ENTRIES_MAX`] entries.
    Many,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it listens for the others.
    pub addr: SocketAddr,
    /// Its public key.
    pub key: [u8; KEY_BYTES],
    /// The version of the nodes' messages that it speaks.
    pub version: u16,
}

impl Entry {
    /// Reads `ADDR,KEY,VERSION`; what later versions add behind is ignored.
    pub fn parse(text: &str) -> Option<Entry> {
        let mut parts = text.split(',');
        let addr: SocketAddr = parts.next()?.parse().ok()?;
        let key = base64::decode(parts.next()?, KEY_BYTES)?.try_into().ok()?;
        let version = parts.next()?.parse().ok()?;
        let can_be_reached = !addr.ip().is_unspecified() && (1..u16::MAX).contains(&addr.port());
        can_be_reached.then_some(Entry { addr, key, version })
    }

    /// As it stands in etcd.
    pub fn text(&self) -> String {
        let key = base64::encode(&self.key);
        format!("{},{key},{}", self.addr, self.version)
    }
}

/// A node, with its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What it says of itself; `None`: nothing that is understood.
    pub entry: Option<Entry>,
    /// The revision that last changed it.
    pub revision: u64,
    /// The lease with which it ends; 0: none.
    pub lease: u64,
}

/// All that stands below a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Of etcd, when it answered.
    pub revision: u64,
    /// In the order of their names.
    pub nodes: Vec<Listed>,
    /// The names of nodes that are to be emptied.
    pub drains: Vec<String>,
}

/// The key of a node's entry.
pub fn node_key(prefix: &str, name: &str) -> String {
    format!("{prefix}/nodes/{name}")
}

/// The key that has a node emptied.
pub fn drain_key(prefix: &str, name: &str) -> String {
    format!("{prefix}/drains/{name}")
}

/// Asks `/v3/kv/range` for all below a prefix.
pub fn ask_listing(prefix: &str) -> String {
    let limit = ETCD_ENTRIES_MAX + 1;
    format!("{{{},\"limit\":\"{limit}\"}}", below(prefix))
}

/// Asks `/v3/watch` to tell what changes below a prefix from a revision on.
pub fn ask_watch(prefix: &str, revision: u64) -> String {
    let below = below(prefix);
    format!("{{\"create_request\":{{{below},\"start_revision\":\"{revision}\"}}}}")
}

fn below(prefix: &str) -> String {
    let quoted = |end: char| base64::encode(format!("{prefix}{end}").as_bytes());
    let (from, to) = (quoted('/'), quoted('0')); // '0' comes after '/'
    format!("\"key\":\"{from}\",\"range_end\":\"{to}\"")
}

/// Asks `/v3/lease/grant` for a lease of so many seconds.
pub fn ask_lease(ttl_s: u64) -> String {
    format!("{{\"TTL\":\"{ttl_s}\"}}")
}

/// Asks `/v3/lease/keepalive` for more time.
pub fn ask_more(lease: u64) -> String {
    format!("{{\"ID\":\"{lease}\"}}")
}

/// Asks `/v3/kv/txn` to write a key if it was last changed at a revision; 0: if it is not there.
pub fn ask_write(key: &str, revision: u64, value: &str, lease: u64) -> String {
    let (key, value) = (
        base64::encode(key.as_bytes()),
        base64::encode(value.as_bytes()),
    );
    format!(
        "{{\"compare\":[{{\"result\":\"EQUAL\",\"target\":\"MOD\",\"key\":\"{key}\",\"mod_revision\":\"{revision}\"}}],\
         \"success\":[{{\"request_put\":{{\"key\":\"{key}\",\"value\":\"{value}\",\"lease\":\"{lease}\"}}}}]}}"
    )
}

/// Asks `/v3/kv/put` to write a key for good.
pub fn ask_put(key: &str, value: &str) -> String {
    let (key, value) = (
        base64::encode(key.as_bytes()),
        base64::encode(value.as_bytes()),
    );
    format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}")
}

/// Asks `/v3/kv/deleterange` to remove a key.
pub fn ask_delete(key: &str) -> String {
    format!("{{\"key\":\"{}\"}}", base64::encode(key.as_bytes()))
}

/// What the answer to [`ask_listing`] says. What stands below other keys, and names that no node has, are left out.
///
/// # Errors
/// It is no such answer, or has too many entries.
pub fn listing(prefix: &str, answer: &[u8]) -> Result<Listing, BadAnswer> {
    let answer = json(answer)?;
    let revision = number(&answer["header"]["revision"]).ok_or(BadAnswer::Field("revision"))?;
    let none = Vec::new();
    let entries = match &answer["kvs"] {
        Value::Null => &none, // what is empty is left out
        Value::Array(entries) => entries,
        _ => return Err(BadAnswer::Field("kvs")),
    };
    if entries.len() > ETCD_ENTRIES_MAX || answer["more"] == Value::Bool(true) {
        return Err(BadAnswer::Many);
    }
    let mut listing = Listing {
        revision,
        ..Listing::default()
    };
    for entry in entries {
        let key = text(&entry["key"], prefix.len() + 8 + CLUSTER_NAME_BYTES_MAX);
        let Some(key) = key else { continue };
        let Some((kind, name)) = kind_and_name(prefix, &key) else {
            continue;
        };
        match kind {
            "nodes" => {
                let value = text(&entry["value"], ETCD_VALUE_BYTES_MAX);
                listing.nodes.push(Listed {
                    name: name.to_owned(),
                    entry: value.and_then(|value| Entry::parse(&value)),
                    revision: number(&entry["mod_revision"])
                        .ok_or(BadAnswer::Field("mod_revision"))?,
                    lease: number(&entry["lease"]).unwrap_or(0),
                });
            }
            _ => listing.drains.push(name.to_owned()),
        }
    }
    listing.nodes.sort_by(|one, two| one.name.cmp(&two.name));
    listing.nodes.dedup_by(|one, two| one.name == two.name);
    listing.drains.sort();
    listing.drains.dedup();
    Ok(listing)
}

fn kind_and_name<'a>(prefix: &str, key: &'a str) -> Option<(&'a str, &'a str)> {
    let (kind, name) = key
        .strip_prefix(prefix)?
        .strip_prefix('/')?
        .split_once('/')?;
    (["nodes", "drains"].contains(&kind) && is_name(name)).then_some((kind, name))
}

/// Whether a text is a name that a node may have.
pub fn is_name(text: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let has_length = (1..=CLUSTER_NAME_BYTES_MAX).contains(&text.len());
    has_length && text.bytes().all(is_sign) && text != "off"
}

/// The lease that the answer to [`ask_lease`] gives.
///
/// # Errors
/// It is no such answer.
pub fn lease(answer: &[u8]) -> Result<u64, BadAnswer> {
    let lease = number(&json(answer)?["ID"]).filter(|lease| *lease != 0);
    lease.ok_or(BadAnswer::Field("ID"))
}

/// Whether the answer to [`ask_more`] says that the lease goes on; `false`: there is no such lease any more.
///
/// # Errors
/// It is no such answer.
pub fn goes_on(answer: &[u8]) -> Result<bool, BadAnswer> {
    let result = &json(answer)?["result"];
    number(&result["ID"]).ok_or(BadAnswer::Field("ID"))?;
    Ok(number(&result["TTL"]).is_some_and(|ttl| ttl > 0))
}

/// Whether the answer to [`ask_write`] says that it was written.
///
/// # Errors
/// It is no such answer.
pub fn is_written(answer: &[u8]) -> Result<bool, BadAnswer> {
    let answer = json(answer)?;
    number(&answer["header"]["revision"]).ok_or(BadAnswer::Field("revision"))?;
    Ok(answer["succeeded"] == Value::Bool(true))
}

/// What etcd says is wrong, for the log; at most 200 signs, none of which steers a terminal.
pub fn error_of(answer: &[u8]) -> Option<String> {
    let answer = json(answer).ok()?;
    let error = answer["error"].as_str().or(answer["message"].as_str())?;
    let signs = error.chars().filter(|sign| !sign.is_control());
    Some(signs.take(200).collect())
}

fn json(answer: &[u8]) -> Result<Value, BadAnswer> {
    if answer.len() > ETCD_ANSWER_BYTES_MAX {
        return Err(BadAnswer::Long);
    }
    serde_json::from_slice(answer).map_err(|_| BadAnswer::Json)
}

/// A number of 64 bits, which JSON has as a text.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(digits) => digits.parse().ok(),
        value => value.as_u64(),
    }
}

fn text(value: &Value, bytes_max: usize) -> Option<String> {
    String::from_utf8(base64::decode(value.as_str()?, bytes_max)?).ok()
}

#[cfg(test)]
#[path = "etcd_tests.rs"]
mod tests;
