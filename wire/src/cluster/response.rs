//! What a connection that moves carries: a file, and how much of it has been sent.

use std::fmt;

use super::Bad;
use super::bytes::{Reader, put_bytes};
use crate::limits::{CLUSTER_ASKED_BYTES_MAX, CLUSTER_HEAD_BYTES_MAX, CLUSTER_OBJECT_BYTES_MAX};

/// A version of a file and a part of it. Files of equal size and time are taken for equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The path below the root.
    pub name: Vec<u8>,
    /// The file's length.
    pub size_bytes: u64,
    /// The file's modification, ns since 1970.
    pub mtime_ns: i64,
    /// The first byte of the part.
    pub from_bytes: u64,
    /// The byte behind the part.
    pub to_bytes: u64,
}

/// A response under way. The connection may carry others after it.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// What its body is, all of it.
    pub object: Object,
    /// Its head as home wrote it, so that the client sees what one node would send.
    pub head: Vec<u8>,
    /// All bytes must be of one version of the file.
    pub one_version: bool,
    /// Bytes of head and body before SND.NXT.
    pub sent_bytes: u64,
    /// Time since its request, and how much of it was spent on the disk and on the client.
    pub took_us: [u64; 3],
    /// What the access log says of it; `None`: it has no line.
    pub record: Option<Record>,
}

/// A request, as the access log shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The status of its response.
    pub status: u16,
    /// Method, target and version.
    pub line: [Vec<u8>; 3],
    /// Range, Referer and User-Agent.
    pub fields: [Option<Vec<u8>>; 3],
    /// Only the beginning of each was kept.
    pub brief: bool,
}

/// Where the connection stands, as its machine counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of the response under way or the next one, wrapping.
    pub nth: u16,
    /// All bytes ever given to its sockets, up to SND.NXT.
    pub given_bytes: u64,
    /// How many of them the client has acknowledged.
    pub acked_bytes: u64,
    /// The client's rate; 0: not known.
    pub rate_bytes_per_s: u64,
    /// Without a response: for how long it has been so.
    pub idle_us: u64,
    /// How often it has moved between nodes, this time included.
    pub moves: u32,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Response {{ {:?}, {} sent }}",
            self.object, self.sent_bytes
        )
    }
}

impl Object {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        put_bytes(to, &self.name);
        to.extend(self.size_bytes.to_le_bytes());
        to.extend(self.mtime_ns.to_le_bytes());
        to.extend(self.from_bytes.to_le_bytes());
        to.extend(self.to_bytes.to_le_bytes());
    }

    pub(super) fn parse(body: &mut Reader<'_>) -> Result<Object, Bad> {
        let object = Object {
            name: body.bytes(CLUSTER_OBJECT_BYTES_MAX)?.to_vec(),
            size_bytes: body.u64()?,
            mtime_ns: body.u64()? as i64,
            from_bytes: body.u64()?,
            to_bytes: body.u64()?,
        };
        let ordered = object.from_bytes <= object.to_bytes && object.to_bytes <= object.size_bytes;
        if object.name.is_empty() || object.name.contains(&0) || !ordered {
            return Err(Bad::Value);
        }
        Ok(object)
    }
}

impl Response {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        self.object.encode(to);
        put_bytes(to, &self.head);
        to.push(self.one_version.into());
        to.extend(self.sent_bytes.to_le_bytes());
        self.took_us
            .iter()
            .for_each(|us| to.extend(us.to_le_bytes()));
        to.push(self.record.is_some().into());
        if let Some(record) = &self.record {
            record.encode(to);
        }
    }

    pub(super) fn parse(body: &mut Reader<'_>) -> Result<Response, Bad> {
        let response = Response {
            object: Object::parse(body)?,
            head: body.bytes(CLUSTER_HEAD_BYTES_MAX)?.to_vec(),
            one_version: body.bool()?,
            sent_bytes: body.u64()?,
            took_us: [body.u64()?, body.u64()?, body.u64()?],
            record: match body.bool()? {
                true => Some(Record::parse(body)?),
                false => None,
            },
        };
        let body_bytes = response.object.to_bytes - response.object.from_bytes;
        let len_bytes = body_bytes.saturating_add(response.head.len() as u64);
        if response.sent_bytes > len_bytes || response.head.is_empty() {
            return Err(Bad::Value);
        }
        Ok(response)
    }
}

impl Record {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.status.to_le_bytes());
        self.line.iter().for_each(|part| put_bytes(to, part));
        for field in &self.fields {
            to.push(field.is_some().into());
            if let Some(field) = field {
                put_bytes(to, field);
            }
        }
        to.push(self.brief.into());
    }

    fn parse(body: &mut Reader<'_>) -> Result<Record, Bad> {
        let mut left_bytes = CLUSTER_ASKED_BYTES_MAX;
        let mut text = |body: &mut Reader<'_>| {
            let text = body.bytes(left_bytes)?.to_vec();
            left_bytes -= text.len();
            Ok::<_, Bad>(text)
        };
        let mut record = Record {
            status: body.u16()?,
            ..Record::default()
        };
        for part in &mut record.line {
            *part = text(body)?;
        }
        for field in &mut record.fields {
            *field = match body.bool()? {
                true => Some(text(body)?),
                false => None,
            };
        }
        record.brief = body.bool()?;
        Ok(record)
    }
}

impl Progress {
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        to.extend(self.nth.to_le_bytes());
        let bytes = [self.given_bytes, self.acked_bytes, self.rate_bytes_per_s];
        for number in bytes.into_iter().chain([self.idle_us]) {
            to.extend(number.to_le_bytes());
        }
        to.extend(self.moves.to_le_bytes());
    }

    pub(super) fn parse(body: &mut Reader<'_>) -> Result<Progress, Bad> {
        let progress = Progress {
            nth: body.u16()?,
            given_bytes: body.u64()?,
            acked_bytes: body.u64()?,
            rate_bytes_per_s: body.u64()?,
            idle_us: body.u64()?,
            moves: body.u32()?,
        };
        if progress.acked_bytes > progress.given_bytes || progress.given_bytes > u64::MAX / 2 {
            return Err(Bad::Value);
        }
        Ok(progress)
    }
}
