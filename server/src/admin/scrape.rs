//! The HTTP side of the control thread: /metrics, /healthz, /readyz. One request a connection.

use std::sync::atomic::Ordering::Relaxed;

use ackpace_wire::http::fields::{Field, members};
use ackpace_wire::http::{Method, Parsed, Request, Status, parse};

use super::Board;
use super::metrics::{self, Form};
use crate::limits::SCRAPE_HEAD_BYTES_MAX;
use crate::store::served::Presence;

/// The answer to the input so far; `None` while the head is incomplete.
pub fn answer(bytes: &[u8], board: &Board) -> Option<Vec<u8>> {
    match parse(bytes) {
        Parsed::Complete { request, .. } => Some(answered(&request, board)),
        Parsed::Reject(reject) => Some(response(reject.status, "text/plain", reject.why, false)),
        Parsed::Incomplete if bytes.len() >= SCRAPE_HEAD_BYTES_MAX => Some(response(
            Status::HeaderFieldsTooLarge,
            "text/plain",
            "The head of the request is too long for this port.",
            false,
        )),
        Parsed::Incomplete => None,
    }
}

fn answered(request: &Request<'_>, board: &Board) -> Vec<u8> {
    let plain = "text/plain; charset=utf-8";
    let head = request.method == Method::Head;
    if !head && request.method != Method::Get {
        let text = "Only GET and HEAD are served here.";
        return response(Status::MethodNotAllowed, plain, text, head);
    }
    let path = request.target.split(|byte| *byte == b'?').next();
    match path.unwrap_or_default() {
        b"/metrics" => {
            let form = form(request);
            let text = metrics::render(board, form);
            response(Status::Ok, form.content_type(), &text, head)
        }
        b"/healthz" => response(Status::Ok, plain, "alive\n", head),
        b"/readyz" if board.shared.stopping.load(Relaxed) => {
            response(Status::ServiceUnavailable, plain, "draining\n", head)
        }
        b"/readyz" => {
            let (status, text) = match board.shared.site.root.presence() {
                Presence::Here => (Status::Ok, "ready\n"),
                Presence::Away => (
                    Status::ServiceUnavailable,
                    "the directory that is served is not there\n",
                ),
                Presence::Removed => (
                    Status::ServiceUnavailable,
                    "the directory that is served was removed\n",
                ),
            };
            response(status, plain, text, head)
        }
        b"/" => response(Status::Ok, plain, "/metrics\n/healthz\n/readyz\n", head),
        _ => response(Status::NotFound, plain, "Nothing is here: see /\n", head),
    }
}

/// OpenMetrics for clients that ask for it, as Prometheus does; the older text for all others.
fn form(request: &Request<'_>) -> Form {
    let wanted = b"application/openmetrics-text";
    let open = members(request.fields().values(Field::Accept)).any(|range| {
        let range = range.to_ascii_lowercase();
        range.starts_with(wanted) && !range.ends_with(b"q=0")
    });
    if open { Form::OpenMetrics } else { Form::Text }
}

fn response(status: Status, content_type: &str, body: &str, head_only: bool) -> Vec<u8> {
    let allow = match status {
        Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    let mut text = format!(
        "HTTP/1.1 {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n{allow}\
         Connection: close\r\n\r\n",
        status.line(),
        body.len()
    );
    if !head_only {
        text.push_str(body);
    }
    text.into_bytes()
}
