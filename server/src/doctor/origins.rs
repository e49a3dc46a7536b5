//! What `ackpace doctor` says of a gateway: its memory for payload, and whether its origins answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use ackpace_core::units::MIB;
use ackpace_wire::http::ask::Condition;
use ackpace_wire::http::{Asked, ParsedResponse, parse_response};
use ackpace_wire::limits::RESPONSE_HEAD_BYTES_MAX;

use crate::gateway::{Address, Gateway, NO_ANSWER, Tls, tls_told};

/// How long an origin may take for each step. Longer: the operator is told, and can try again.
const STEP_MAX: Duration = Duration::from_secs(3);
/// Addresses of an origin that are tried. More: the first ones.
const ADDRESSES_MAX: usize = 4;

/// A line for each thing.
pub fn lines(gateway: &Gateway) -> Vec<String> {
    let mib = gateway.slab.len_bytes() / MIB;
    let memory = match gateway.slab.lost() {
        Some(lost) => lost.to_owned(),
        None => format!("ok: {mib} MiB of memory for payload of origins, sent without a copy"),
    };
    let loaded = || "ok: TLS: certificate authorities are known".to_owned();
    let tls = gateway.tls.as_ref().map(|_| loaded());
    let origins = gateway.origins.iter().map(|origin| {
        match status_of(origin, gateway.tls.as_ref()) {
            Ok(status) => format!("ok: origin {origin}: reachable, it answers {status}"),
            Err(why) => format!(
                "lost: origin {origin}: {why}. Until it answers, clients get 502 or what is cached"
            ),
        }
    });
    [memory].into_iter().chain(tls).chain(origins).collect()
}

/// Asks an origin for the head of what is at its base. Returns the status.
fn status_of(origin: &Address, tls: Option<&Tls>) -> Result<u16, String> {
    let request = origin.request(Asked::Head, b"/", None, Condition::None)?;
    let mut socket = connect(origin).map_err(|error| error.to_string())?;
    let told = |error: io::Error| told(&error, origin);
    match tls.filter(|_| origin.tls) {
        None => ask(&mut socket, &request).map_err(told),
        Some(tls) => {
            let session = tls.blocking(&origin.host);
            let session = session.map_err(|error| tls_told(&error, &origin.host))?;
            let mut stream = rustls::StreamOwned::new(session, socket);
            ask(&mut stream, &request).map_err(told)
        }
    }
}

fn told(error: &io::Error, origin: &Address) -> String {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    match of_tls {
        Some(error) => tls_told(error, &origin.host),
        None if error.kind() == ErrorKind::WouldBlock => {
            format!("no answer within {} s", STEP_MAX.as_secs())
        }
        None => error.to_string(),
    }
}

fn connect(origin: &Address) -> io::Result<TcpStream> {
    let mut failed = io::Error::other(format!("{} has no address", origin.host));
    for address in (origin.host.as_str(), origin.port)
        .to_socket_addrs()?
        .take(ADDRESSES_MAX)
    {
        match TcpStream::connect_timeout(&address, STEP_MAX) {
            Ok(socket) => {
                socket.set_read_timeout(Some(STEP_MAX))?;
                socket.set_write_timeout(Some(STEP_MAX))?;
                return Ok(socket);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn ask(stream: &mut (impl Read + Write), request: &[u8]) -> io::Result<u16> {
    stream.write_all(request)?;
    stream.flush()?;
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    while received.len() < RESPONSE_HEAD_BYTES_MAX {
        let len = match stream.read(&mut piece) {
            // The kernel does not restart a read with a timeout (signal(7)); what is left of an io_uring may interrupt one.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        if len == 0 {
            break;
        }
        received.extend_from_slice(&piece[..len]);
        loop {
            let head_len_bytes = match parse_response(&received, Asked::Head) {
                ParsedResponse::Incomplete => break,
                ParsedResponse::Bad(why) => return Err(io::Error::other(why)),
                ParsedResponse::Interim { head_len_bytes } => head_len_bytes,
                ParsedResponse::Complete { response, .. } => return Ok(response.status),
            };
            received.drain(..head_len_bytes);
        }
    }
    Err(io::Error::other(NO_ANSWER))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn an_origin_is_reachable_if_it_answers() {
        for (answer, expected) in [
            ("HTTP/1.1 100 \r\n\r\nHTTP/1.1 404 \r\n\r\n", Ok(404)),
            ("", Err("closed the connection")),
            ("SSH-2.0\r\n\r\n", Err("")),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let origin = Address::parse(&format!("http://127.0.0.1:{port}/pub"));
            let origin = origin.expect("an address");
            let answers = thread::spawn(move || {
                let (mut socket, _) = listener.accept().expect("a connection");
                let mut asked = [0; 4096];
                let len = socket.read(&mut asked).expect("a request");
                assert!(asked[..len].starts_with(b"HEAD /pub/ HTTP/1.1\r\n"));
                socket.write_all(answer.as_bytes()).expect("it is sent");
            });
            let status = status_of(&origin, None);
            answers.join().expect("it is asked");
            match (status, expected) {
                (Ok(status), Ok(expected)) => assert_eq!(status, expected),
                (Err(told), Err(expected)) => assert!(told.contains(expected), "{told}"),
                (status, _) => panic!("{status:?}"),
            }
            let gone = status_of(&origin, None).expect_err("it is gone");
            assert!(gone.contains("refused"), "{gone}");
        }
    }
}
