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
    ask(who, &mut socket, path)?;
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
    ask(who, &mut socket, path)?;
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

fn connect(who: &str, address: SocketAddr) -> Result<TcpStream> {
    let what = || format!("{who}: connection to {address}");
    let socket = TcpStream::connect(address).doing(what)?;
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .doing(what)?;
    Ok(socket)
}

fn ask(who: &str, socket: &mut TcpStream, path: &str) -> Result<()> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n");
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
