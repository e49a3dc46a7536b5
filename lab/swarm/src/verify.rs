//! Checks one whole download byte by byte: figures only count for correct answers.

use crate::head;
use ackpace_lab_base::content::{self, Tag};
use ackpace_lab_base::error::{Doing, LabError, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Downloads `path` and compares every byte with the content that the path defines.
///
/// # Errors
/// The first wrong status, length or byte, as the contender's fault; or a failed read or write.
pub fn download(who: &str, address: SocketAddr, path: &str, len_bytes: u64) -> Result<()> {
    let mut socket = connect(who, address)?;
    ask(who, &mut socket, path, "1.1")?;
    let (head, mut body) = read_head(who, &mut socket)?;
    if head.status != 200 || head.body_len_bytes != Some(len_bytes) {
        let what = format!("wrong answer for {path}: {head:?}");
        return Err(LabError::contender(who, what));
    }
    let (mut offset_bytes, tag) = (0, Tag::of(path));
    while offset_bytes < len_bytes {
        if body.is_empty() {
            body.resize(1 << 20, 0);
            let got = socket.read(&mut body).doing(|| format!("{who}: {path}"))?;
            body.truncate(got);
        }
        if body.is_empty() {
            let what = format!("{path} ends after {offset_bytes} of {len_bytes} bytes");
            return Err(LabError::contender(who, what));
        }
        if let Some(at) = content::first_wrong(tag, offset_bytes, &body) {
            let what = format!("{path} differs from the file at or after byte {at}");
            return Err(LabError::contender(who, what));
        }
        offset_bytes += body.len() as u64;
        body.clear();
    }
    Ok(())
}

/// Downloads a small file on a new connection, and returns the connection.
///
/// # Errors
/// A wrong status or length, as the contender's fault; or a failed read or write.
pub fn ask_once(who: &str, address: SocketAddr, path: &str, len_bytes: u64) -> Result<TcpStream> {
    let mut socket = connect(who, address)?;
    ask(who, &mut socket, path, "1.1")?;
    let (head, mut body) = read_head(who, &mut socket)?;
    let have = body.len() as u64;
    if head.status != 200 || head.body_len_bytes != Some(len_bytes) || have > len_bytes {
        let what = format!("wrong answer for {path}: {head:?}");
        return Err(LabError::contender(who, what));
    }
    body.resize((len_bytes - have) as usize, 0);
    socket
        .read_exact(&mut body)
        .doing(|| format!("{who}: {path}"))?;
    Ok(socket)
}

/// Downloads a listing by HTTP/1.0; returns its length after checking that it links all `names`.
///
/// # Errors
/// A wrong status or length or a missing link, as the contender's fault; or a failed read or write.
pub fn listing(who: &str, address: SocketAddr, path: &str, names: &[String]) -> Result<u64> {
    let mut socket = connect(who, address)?;
    ask(who, &mut socket, path, "1.0")?;
    let (head, mut body) = read_head(who, &mut socket)?;
    socket
        .read_to_end(&mut body)
        .doing(|| format!("{who}: {path}"))?;
    if head.status != 200
        || head
            .body_len_bytes
            .is_some_and(|len| len != body.len() as u64)
    {
        return Err(LabError::contender(
            who,
            format!("wrong answer for {path}: {head:?}"),
        ));
    }
    let links = links(&String::from_utf8_lossy(&body));
    match names.iter().find(|name| !links.contains(name.as_str())) {
        Some(name) => Err(LabError::contender(
            who,
            format!("{path} lacks a link to {name}"),
        )),
        None => Ok(body.len() as u64),
    }
}

/// All values of href="...".
fn links(page: &str) -> std::collections::HashSet<String> {
    let hrefs = page.split("href=\"").skip(1);
    hrefs
        .filter_map(|rest| Some(rest.split_once('"')?.0.trim_start_matches("./").to_owned()))
        .collect()
}

fn connect(who: &str, address: SocketAddr) -> Result<TcpStream> {
    let what = || format!("{who}: connection to {address}");
    let socket = TcpStream::connect(address).doing(what)?;
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .doing(what)?;
    Ok(socket)
}

fn ask(who: &str, socket: &mut TcpStream, path: &str, version: &str) -> Result<()> {
    let request = format!("GET {path} HTTP/{version}\r\nHost: lab\r\n\r\n");
    socket
        .write_all(request.as_bytes())
        .doing(|| format!("{who}: GET {path}"))
}

/// Reads a response head; also returns the bytes after it, which begin the body.
///
/// # Errors
/// A head that is incomplete or not HTTP/1.x, as the contender's fault; or a failed read.
pub fn read_head(who: &str, socket: &mut TcpStream) -> Result<(head::Head, Vec<u8>)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let got = socket
            .read(&mut piece)
            .doing(|| format!("{who}: response head"))?;
        bytes.extend_from_slice(&piece[..got]);
        match head::parse(&bytes) {
            Ok(Some(head)) => {
                let body = bytes.split_off(head.len_bytes);
                return Ok((head, body));
            }
            Ok(None) if got > 0 => {}
            Ok(None) => return Err(LabError::contender(who, "closed within a response head")),
            Err(why) => return Err(LabError::contender(who, why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_with_and_without_a_leading_dot() {
        let links = links(r#"<a href="./a.txt">a</a> <a class=x href="b.txt">b</a> <a href="#);
        assert!(links.contains("a.txt") && links.contains("b.txt"));
        assert_eq!(links.len(), 2);
    }
}
