//! Writes requests, and checks whether a head is a valid answer.

use std::io::Write;

use super::client::Client;
use crate::head::Head;
use crate::objects::{Catalog, Wanted};
use crate::setup::PreparedClass;
use crate::tally::Fault;

/// The offset of the body in the file and its required length, or the fault of a head that does not match the
/// request.
pub fn answer(
    head: &Head,
    client: &Client,
    catalog: &Catalog,
) -> Result<(u64, u64), (Fault, String)> {
    let status = match client.wanted {
        Wanted::Whole => 200,
        Wanted::Range { .. } => 206,
    };
    if head.status != status {
        return Err((
            Fault::Status,
            format!("status {}, {status} awaited", head.status),
        ));
    }
    let Some(len_bytes) = head.body_len_bytes.filter(|_| !head.chunked) else {
        return Err((Fault::Head, "no Content-Length".into()));
    };
    let file_bytes = catalog.len_bytes();
    let (offset_bytes, expected) = match client.wanted {
        Wanted::Whole => (0, file_bytes.unwrap_or(len_bytes)),
        Wanted::Range { from, len_bytes } => {
            let last = from + len_bytes - 1;
            let right = head.range.is_some_and(|range| {
                let whole = file_bytes.is_none_or(|bytes| bytes == range.total_bytes);
                range.first == from && range.last == last && whole
            });
            if !right {
                let text = format!("range {:?}, {from}-{last} awaited", head.range);
                return Err((Fault::Range, text));
            }
            (from, len_bytes)
        }
    };
    match len_bytes == expected {
        true => Ok((offset_bytes, len_bytes)),
        false => Err((
            Fault::Length,
            format!("Content-Length {len_bytes}, {expected} awaited"),
        )),
    }
}

/// Writes the request to `into`, replacing its content.
pub fn write_request(into: &mut Vec<u8>, prepared: &PreparedClass, client: &Client) {
    into.clear();
    into.extend_from_slice(b"GET ");
    prepared.catalog.write_path(client.object, into);
    into.extend_from_slice(b" HTTP/1.1\r\nHost: lab\r\nUser-Agent: ackpace-lab\r\n");
    if let Wanted::Range { from, len_bytes } = client.wanted {
        let last = from + len_bytes - 1;
        write!(into, "Range: bytes={from}-{last}\r\n").expect("a Vec takes everything");
    }
    if !prepared.class.keep_alive {
        into.extend_from_slice(b"Connection: close\r\n");
    }
    into.extend_from_slice(b"\r\n");
}

/// The request, for error texts.
pub fn name(client: &Client, catalog: &Catalog) -> String {
    let path = catalog.path(client.object);
    match client.wanted {
        Wanted::Whole => format!("GET {path}"),
        Wanted::Range { from, len_bytes } => {
            format!("GET {path} bytes={from}-{}", from + len_bytes - 1)
        }
    }
}
