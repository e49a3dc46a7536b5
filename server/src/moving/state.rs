//! A connection as it travels: made of what a worker gave away, and made into what a worker goes on with.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ackpace_core::conn::{Promise, Span, Version};
use ackpace_core::handoff::Refusal;
use ackpace_core::rate::{BelievedRate, RateSource};
use ackpace_core::worker::{Exported, ExportedPart, ExportedResponse, LocalFile, Stage};
use ackpace_wire::cluster::broker::Connection;
use ackpace_wire::cluster::{Handoff, Message, Object, Progress, Response};
use ackpace_wire::limits::{CLUSTER_HEAD_BYTES_MAX, CLUSTER_OBJECT_BYTES_MAX};

use crate::front::http::Front;
use crate::source::Source;
use crate::store::file::File;
use crate::tcp::Accepted;
use crate::transport::Transport;
use crate::worker::{Body, Conn, Flow, Handed};

/// The file of a response under way, with the span of it that has to be in memory while the connection moves: what the client
/// has not acknowledged. `None`: it is between two requests. Asked while the socket runs.
fn object(handed: &Handed) -> Result<Option<Object>, Refusal> {
    let Some((response, head, span, file)) = simple(handed)? else {
        return Ok(None);
    };
    let (file, version) = file;
    let held_bytes = handed.conn.transport.held_bytes().unwrap_or(0);
    let head_bytes = head.len() as u64;
    let in_body = |at_bytes: u64| span.offset_bytes + at_bytes.saturating_sub(head_bytes);
    let acked_bytes = response.sent_bytes.saturating_sub(held_bytes);
    Ok(Some(Object {
        name: file.path.to_vec(),
        size_bytes: version.len_bytes,
        mtime_ns: i64::try_from(version.mtime_ns).map_err(|_| Refusal::Object)?,
        from_bytes: in_body(acked_bytes),
        to_bytes: in_body(response.sent_bytes),
    }))
}

/// The question whether another node can go on with the connection. `None`: no node could.
pub fn prepare(handed: &Handed) -> Option<Message> {
    let nothing = || Object {
        name: b".".to_vec(),
        size_bytes: 0,
        mtime_ns: 0,
        from_bytes: 0,
        to_bytes: 0,
    };
    let object = object(handed).ok()?;
    Some(Message::Prepare(object.unwrap_or_else(nothing)))
}

type Simple<'a> = (
    &'a ExportedResponse<LocalFile>,
    &'a Arc<[u8]>,
    Span,
    (&'a Arc<File>, Version),
);

/// A response of a head and a range of a file; `None`: there is none. Errors: any other, which no other node could go on with.
fn simple(handed: &Handed) -> Result<Option<Simple<'_>>, Refusal> {
    let Some(exported) = &handed.exported else {
        return Err(Refusal::Object);
    };
    let Stage::Response(response) = &exported.stage else {
        return Ok(None);
    };
    let [
        ExportedPart::Bytes(head),
        ExportedPart::File { file, span, .. },
    ] = &response.parts[..]
    else {
        return Err(Refusal::Object);
    };
    let body = &handed.conn.body;
    let own = match (&body.here, &body.source) {
        (Some((file, version)), _) => (file, *version),
        (None, Some(Source::File(own))) => (own, file.version),
        _ => return Err(Refusal::Object),
    };
    let fits = head.len() as u64 == response.head_len_bytes
        && head.len() <= CLUSTER_HEAD_BYTES_MAX
        && (1..=CLUSTER_OBJECT_BYTES_MAX).contains(&own.0.path.len())
        && response.keep_alive
        && !response.request_body;
    match fits {
        true => Ok(Some((response, head, *span, own))),
        false => Err(Refusal::Object),
    }
}

/// The file of its response.
pub fn file(handed: &Handed) -> Option<(Arc<File>, Version)> {
    let (_, _, _, (file, version)) = simple(handed).ok()??;
    Some((Arc::clone(file), version))
}

/// Whether this is the file of a travelling response.
pub fn is_of(state: &Handoff, (file, version): &(Arc<File>, Version)) -> bool {
    state.response.as_ref().is_some_and(|response| {
        let object = &response.object;
        *file.path == *object.name
            && version.len_bytes == object.size_bytes
            && version.mtime_ns == i128::from(object.mtime_ns)
    })
}

/// Its bytes come from this node's own file from now on: the node that has them in memory says nothing.
pub fn serve_here(handed: &mut Handed) {
    let Some((file, version)) = handed.conn.body.here.take() else {
        return;
    };
    let here = LocalFile {
        object: file.id,
        version,
        residency: file.residency,
    };
    if let Some(Stage::Response(response)) = handed.exported.as_mut().map(|it| &mut it.stage) {
        for part in &mut response.parts {
            if let ExportedPart::File { file, .. } = part {
                *file = here;
            }
        }
    }
    handed.conn.body.source = Some(Source::File(file));
}

/// Whether it has what another node could go on with.
pub fn can_travel(handed: &Handed) -> bool {
    handed.conn.peer.is_some() && simple(handed).is_ok()
}

/// A frozen connection, for another node. `unsent_bytes`: of what its socket was given. Errors: the socket holds bytes of an earlier response.
pub fn pack(handed: &Handed, saved: &Connection, unsent_bytes: u64) -> Result<Handoff, Refusal> {
    let exported = handed.exported.as_deref().ok_or(Refusal::Save)?;
    let flight_bytes = u64::from(saved.tcp.snd_nxt.wrapping_sub(saved.tcp.snd_una));
    let given_bytes = exported.given_bytes.saturating_sub(unsent_bytes);
    let mut idle_us = 0;
    let response = match simple(handed)? {
        Some((response, head, span, (file, version))) => {
            let sent_bytes = response.sent_bytes.checked_sub(unsent_bytes);
            let sent_bytes = sent_bytes.filter(|sent_bytes| *sent_bytes >= flight_bytes);
            let one_version = response.parts.iter().all(|part| match part {
                ExportedPart::File { promise, .. } => *promise == Promise::OneVersion,
                ExportedPart::Bytes(_) => true,
            });
            Some(Response {
                object: Object {
                    name: file.path.to_vec(),
                    size_bytes: version.len_bytes,
                    mtime_ns: i64::try_from(version.mtime_ns).map_err(|_| Refusal::Object)?,
                    from_bytes: span.offset_bytes,
                    to_bytes: span.end_bytes(),
                },
                head: head.to_vec(),
                one_version,
                sent_bytes: sent_bytes.ok_or(Refusal::Save)?,
                took_us: [
                    response.took_us,
                    response.waited_disk_us,
                    response.waited_net_us,
                ],
                record: handed.conn.front.travelling(exported.nth),
            })
        }
        None if flight_bytes + unsent_bytes > 0 => return Err(Refusal::Save),
        None => {
            if let Stage::Idle { for_us } | Stage::Head { for_us } = exported.stage {
                idle_us = for_us;
            }
            None
        }
    };
    Ok(Handoff {
        tuple: saved.tuple,
        tcp: saved.tcp,
        congestion: saved.congestion.clone(),
        progress: Progress {
            nth: exported.nth,
            given_bytes,
            acked_bytes: exported.acked_bytes.min(given_bytes),
            rate_bytes_per_s: exported.rate.bytes_per_s,
            idle_us,
            moves: handed.conn.moves().saturating_add(1),
        },
        response,
        received: saved.received.clone(),
        unparsed: handed.conn.front.unused().to_vec(),
    })
}

/// What the machine goes on with. `None`: its response has no file.
fn stage(state: &Handoff, file: Option<&(Arc<File>, Version)>) -> Option<Stage<LocalFile>> {
    let for_us = state.progress.idle_us;
    Some(match &state.response {
        Some(response) => {
            let (file, version) = file?;
            let object = &response.object;
            let head: Arc<[u8]> = response.head.clone().into();
            let file = LocalFile {
                object: file.id,
                version: *version,
                residency: file.residency,
            };
            let span = Span {
                offset_bytes: object.from_bytes,
                len_bytes: object.to_bytes - object.from_bytes,
            };
            let promise = match response.one_version {
                true => Promise::OneVersion,
                false => Promise::Prefix,
            };
            Stage::Response(ExportedResponse {
                head_len_bytes: head.len() as u64,
                parts: [
                    ExportedPart::Bytes(head),
                    ExportedPart::File {
                        file,
                        promise,
                        span,
                    },
                ]
                .into_iter()
                .collect(),
                body_len_bytes: span.len_bytes,
                keep_alive: true,
                sent_bytes: response.sent_bytes,
                request_body: false,
                took_us: response.took_us[0],
                waited_disk_us: response.took_us[1],
                waited_net_us: response.took_us[2],
            })
        }
        None if state.unparsed.is_empty() => Stage::Idle { for_us },
        None => Stage::Head { for_us },
    })
}

/// What a worker goes on with, of a connection that came from another node. `file`: this node's, of the promised version.
pub fn unpack(
    state: &Handoff,
    socket: OwnedFd,
    file: Option<&(Arc<File>, Version)>,
    flow: Flow,
) -> Option<Box<Handed>> {
    let progress = &state.progress;
    let stage = stage(state, file)?;
    let exported = Exported {
        nth: progress.nth,
        given_bytes: progress.given_bytes,
        acked_bytes: progress.acked_bytes,
        rate: BelievedRate {
            bytes_per_s: progress.rate_bytes_per_s,
            source: RateSource::Guess,
        },
        refused: false,
        stage,
    };
    let peer: SocketAddr = state.tuple.client;
    let record = state.response.as_ref().and_then(|it| it.record.as_ref());
    let owed_bytes = state.response.as_ref().map(|response| {
        let object = &response.object;
        response.head.len() as u64 + object.to_bytes - object.from_bytes - response.sent_bytes
    });
    let accepted = Accepted {
        socket,
        peer: Some(peer),
    };
    let conn = Conn {
        front: Front::arrived(&state.unparsed, progress.nth, record),
        body: Body {
            source: file.map(|(file, _)| Source::File(Arc::clone(file))),
            used_sendfile: true,
            ..Body::default()
        },
        owed_bytes: Some(owed_bytes.unwrap_or(0)),
        flow: Some(Box::new(flow)),
        ..Conn::new(accepted, None)
    };
    Some(Box::new(Handed {
        conn,
        exported: Some(Box::new(exported)),
    }))
}

/// Puts back what the client has not acknowledged: the last bytes before SND.NXT. The socket counts them as sent. `false`: it did
/// not take all.
pub fn fill(transport: &Transport, state: &Handoff, file: Option<&(Arc<File>, Version)>) -> bool {
    let mut left_bytes = u64::from(state.tcp.snd_nxt.wrapping_sub(state.tcp.snd_una));
    if left_bytes == 0 {
        return true;
    }
    let (Some(response), Some((file, _))) = (&state.response, file) else {
        return false;
    };
    let Some(mut at_bytes) = response.sent_bytes.checked_sub(left_bytes) else {
        return false;
    };
    let head_bytes = response.head.len() as u64;
    if at_bytes < head_bytes {
        let end_bytes = head_bytes.min(at_bytes + left_bytes);
        let head = &response.head[at_bytes as usize..end_bytes as usize];
        if transport.send_slices(&[IoSlice::new(head)], true) != Ok(head.len() as u64) {
            return false;
        }
        (at_bytes, left_bytes) = (end_bytes, left_bytes - head.len() as u64);
    }
    let mut span = Span {
        offset_bytes: response.object.from_bytes + (at_bytes - head_bytes.min(at_bytes)),
        len_bytes: left_bytes,
    };
    while span.len_bytes > 0 {
        match transport.send_file(&**file, span) {
            Ok(taken) if taken > 0 => span = span.behind(taken),
            _ => return false,
        }
    }
    true
}
