//! Any bytes as Accept-Encoding, one field per line, and as Accept: [`negotiation`](ackpace_wire::http::negotiation).

use ackpace_wire::http::Coding;
use ackpace_wire::http::negotiation::{choose_coding, prefers_json};

/// Laws: only offered codings are chosen; the choice matches a plain reading of RFC 9110 section 12.5.3; JSON goes only
/// to clients whose field covers it.
pub fn accept_encoding(data: &[u8]) {
    let lines = data.split(|&byte| byte == b'\n');
    let members = read_plainly(data);
    for offered in [
        &Coding::ALL[..],
        &[Coding::Gzip],
        &[Coding::Gzip, Coding::Brotli],
        &[],
    ] {
        let chosen = choose_coding(lines.clone(), offered);
        assert!(chosen.is_none_or(|coding| offered.contains(&coding)));
        let best = choose_plainly(&members, offered);
        assert_eq!(chosen, best, "{members:?} of {offered:?}");
    }
    if prefers_json(lines) {
        let text = data.to_ascii_lowercase();
        let names = [&b"application/json"[..], b"application/*", b"*/*"];
        assert!(
            names
                .iter()
                .any(|name| text.windows(name.len()).any(|w| &w == name))
        );
    }
}

/// Lower-case names and weights; members with a malformed weight are left out.
fn read_plainly(data: &[u8]) -> Vec<(Vec<u8>, f64)> {
    let trimmed = |text: &[u8]| -> Vec<u8> {
        let is_space = |byte: &&u8| matches!(**byte, b' ' | b'\t');
        let start = text.iter().take_while(is_space).count();
        let end = text[start..].iter().rev().take_while(is_space).count();
        text[start..text.len() - end].to_ascii_lowercase()
    };
    let mut read = Vec::new();
    for member in data.split(|&byte| byte == b',' || byte == b'\n') {
        if trimmed(member).is_empty() {
            continue;
        }
        let mut pieces = member.split(|&byte| byte == b';').map(trimmed);
        let name = pieces.next().unwrap_or_default();
        let mut weights = pieces.filter_map(|piece| piece.strip_prefix(b"q=").map(weight));
        let weight = weights.try_fold(1.0, |_, weight| weight);
        read.extend(weight.map(|weight| (name, weight)));
    }
    read
}

fn weight(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let shaped = plain && text.len() <= 5 && text.starts_with(['0', '1']);
    let dotted = text.len() == 1 || text.as_bytes().get(1) == Some(&b'.');
    let weight: f64 = text.parse().ok().filter(|_| shaped && dotted)?;
    (weight <= 1.0).then_some(weight)
}

fn choose_plainly(members: &[(Vec<u8>, f64)], offered: &[Coding]) -> Option<Coding> {
    let named = |names: &[&str]| {
        let is_it = |(name, _): &&(Vec<u8>, f64)| names.iter().any(|n| n.as_bytes() == name);
        let given = members.iter().find(is_it);
        let star = || members.iter().find(|(name, _)| name == b"*");
        given.or_else(star).map_or(0.0, |(_, weight)| *weight)
    };
    let of = |coding: &Coding| match coding {
        Coding::Gzip => named(&["gzip", "x-gzip"]),
        Coding::Brotli => named(&["br"]),
        Coding::Zstd => named(&["zstd"]),
    };
    let top = offered.iter().map(of).fold(0.0, f64::max);
    let best = offered.iter().copied().find(|coding| of(coding) == top);
    best.filter(|_| top > 0.0 && top >= named(&["identity"]))
}
