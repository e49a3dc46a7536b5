//! One line of a log.

use std::fmt;

use crate::civil::Civil;

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Squid's `logformat squid`, of a proxy: many clients ask many servers.
    Squid,
    /// Common or combined, of nginx, Apache or this server.
    Combined,
    /// What this server writes with `access_log_format = "json"`.
    Json,
}

impl LogFormat {
    /// The format in which this line seems to be.
    pub fn of(line: &[u8]) -> LogFormat {
        match line.first() {
            Some(b'{') => LogFormat::Json,
            _ if line.contains(&b'[') && line.contains(&b'"') => LogFormat::Combined,
            _ => LogFormat::Squid,
        }
    }

    /// Its name, for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Squid => "squid",
            LogFormat::Combined => "combined",
            LogFormat::Json => "json",
        }
    }

    /// What it does not tell: the column, and why.
    pub fn lacks(self) -> &'static [(&'static str, &'static str)] {
        const CONNECTIONS: (&str, &str) = (
            "connections",
            "no format says which connection a request came by: they are made by the paper's rule, of the same client within 15 s",
        );
        const UNRELATED: (&str, &str) = (
            "unrelated requests",
            "a server's log does not tell the clients behind a proxy apart; take the proxy's log",
        );
        const SERVERS: (&str, &str) = ("servers", "it is the log of one server");
        match self {
            LogFormat::Squid => &[(
                "connections",
                "Squid does not say by which connection it asked a server: they are made by the paper's rule, one to each server, \
                 open until 15 s after its last request",
            )],
            LogFormat::Combined | LogFormat::Json => &[CONNECTIONS, UNRELATED, SERVERS],
        }
    }
}

/// What a line says. Texts are as they stand there, escapes included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// When it was written, Unix milliseconds: at the end of the response.
    pub at_ms: i64,
    /// Who asked.
    pub client: &'a [u8],
    /// What was asked for: of a proxy the whole URL, of a server the target without a query.
    pub file: &'a [u8],
    /// Bytes of the response, as the log counts them.
    pub bytes: u64,
    /// Of a proxy: the server that it asked, if it asked one and saw the request. Host and port, case as it stands.
    pub server: Option<&'a [u8]>,
}

/// Why a line is none of its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It has fewer fields, or no such key.
    Field(&'static str),
    /// What stands in the place of this is none.
    Value(&'static str),
    /// It is longer than any line of a log.
    Length,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Field(name) => write!(f, "it has no {name}"),
            Bad::Value(name) => write!(f, "what should be its {name} is none"),
            Bad::Length => f.write_str("it is too long"),
        }
    }
}

/// Reads a line, without its line feed.
pub fn parse(format: LogFormat, line: &[u8]) -> Result<Entry<'_>, Bad> {
    match format {
        LogFormat::Squid => squid(line),
        LogFormat::Combined => combined(line),
        LogFormat::Json => json(line),
    }
}

/// `time elapsed client code/status bytes method URL user hierarchy/peer type`.
fn squid(line: &[u8]) -> Result<Entry<'_>, Bad> {
    let mut fields = line
        .split(|byte| *byte == b' ')
        .filter(|field| !field.is_empty());
    let mut next = |name| fields.next().ok_or(Bad::Field(name));
    let at_ms = seconds(next("time")?).ok_or(Bad::Value("time"))?;
    let elapsed = next("elapsed time")?;
    let elapsed = elapsed.strip_prefix(b"-").unwrap_or(elapsed);
    if !elapsed.is_empty() {
        number(elapsed).ok_or(Bad::Value("elapsed time"))?;
    }
    let client = next("client")?;
    if !next("result code")?.contains(&b'/') {
        return Err(Bad::Value("result code"));
    }
    let bytes = number(next("length")?).ok_or(Bad::Value("length"))?;
    let (method, file) = (next("method")?, next("URL")?);
    next("user")?;
    let hierarchy = next("hierarchy code")?;
    let asked = !hierarchy.starts_with(b"NONE")
        && !hierarchy.starts_with(b"HIER_NONE")
        && !hierarchy.starts_with(b"-")
        && method != b"CONNECT";
    Ok(Entry {
        at_ms,
        client,
        file,
        bytes,
        server: asked.then(|| host(file)).flatten(),
    })
}

/// The server that a URL names.
fn host(url: &[u8]) -> Option<&[u8]> {
    let at = url.windows(3).position(|three| three == b"://")?;
    let (scheme, rest) = (&url[..at], &url[at + 3..]);
    let end = rest.iter().position(|byte| b"/?#".contains(byte));
    let authority = &rest[..end.unwrap_or(rest.len())];
    let from = authority.iter().rposition(|byte| *byte == b'@');
    let host = &authority[from.map_or(0, |at| at + 1)..];
    let usual: &[u8] = match scheme.eq_ignore_ascii_case(b"http") {
        true => b":80",
        false => b":443",
    };
    let host = host.strip_suffix(usual).unwrap_or(host);
    (!host.is_empty()).then_some(host)
}

/// `client ident user [10/Oct/2000:20:55:36 +0000] "GET /a HTTP/1.1" 200 4096`, and whatever follows.
fn combined(line: &[u8]) -> Result<Entry<'_>, Bad> {
    let end = line.iter().position(|byte| *byte == b' ');
    let (client, rest) = line.split_at(end.ok_or(Bad::Field("client"))?);
    if client.is_empty() {
        return Err(Bad::Field("client"));
    }
    let start = rest.iter().position(|byte| *byte == b'[');
    let rest = &rest[start.ok_or(Bad::Field("time"))? + 1..];
    let end = rest.iter().position(|byte| *byte == b']');
    let (time, rest) = rest.split_at(end.ok_or(Bad::Field("time"))?);
    let at_ms = common_time(time).ok_or(Bad::Value("time"))?;
    let rest = rest.strip_prefix(b"] \"").ok_or(Bad::Field("request"))?;
    // Servers of old wrote quotes of the request as they came: the last one stands before a status.
    let is_end = |six: &[u8]| six[..2] == *b"\" " && six[2..5].iter().all(u8::is_ascii_digit);
    let end = rest
        .windows(6)
        .position(|six| is_end(six) && six[5] == b' ');
    let (request, rest) = rest.split_at(end.ok_or(Bad::Field("status"))?);
    let bytes = &rest[6..];
    let end = bytes.iter().position(|byte| *byte == b' ');
    let bytes = match &bytes[..end.unwrap_or(bytes.len())] {
        b"-" => 0,
        bytes => number(bytes).ok_or(Bad::Value("length"))?,
    };
    let target = request.split(|byte| *byte == b' ').nth(1);
    Ok(Entry {
        at_ms,
        client,
        file: without_query(target.unwrap_or(request)),
        bytes,
        server: None,
    })
}

/// A flat object with the keys of this server's log, in any order.
fn json(line: &[u8]) -> Result<Entry<'_>, Bad> {
    let (mut at_ms, mut client, mut file, mut bytes) = (None, None, None, None);
    let mut rest = line.strip_prefix(b"{").ok_or(Bad::Value("line"))?;
    while !rest.is_empty() && rest != b"}" {
        let (key, after) = string(rest).ok_or(Bad::Value("line"))?;
        let after = after.strip_prefix(b":").ok_or(Bad::Value("line"))?;
        let (value, after) = value(after).ok_or(Bad::Value("line"))?;
        match key {
            b"time" => at_ms = Some(rfc3339(value).ok_or(Bad::Value("time"))?),
            b"remote_addr" => client = Some(value),
            b"target" => file = Some(without_query(value)),
            b"bytes_sent" => bytes = Some(number(value).ok_or(Bad::Value("bytes_sent"))?),
            _ => {}
        }
        rest = match after {
            [b',', rest @ ..] if !rest.is_empty() => rest,
            b"}" => after,
            _ => return Err(Bad::Value("line")),
        };
    }
    Ok(Entry {
        at_ms: at_ms.ok_or(Bad::Field("time"))?,
        client: client.ok_or(Bad::Field("remote_addr"))?,
        file: file.ok_or(Bad::Field("target"))?,
        bytes: bytes.ok_or(Bad::Field("bytes_sent"))?,
        server: None,
    })
}

/// A string of JSON at the start: what stands between its quotes, and what follows it.
fn string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        match *text.get(at)? {
            b'"' => return Some((&text[..at], &text[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// A string, a number or a word of JSON at the start.
fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if text.first() == Some(&b'"') {
        return string(text);
    }
    let end = text.iter().position(|byte| b",}".contains(byte))?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    (end > 0 && text[..end].iter().all(plain)).then(|| text.split_at(end))
}

fn without_query(target: &[u8]) -> &[u8] {
    let end = target.iter().position(|byte| *byte == b'?');
    &target[..end.unwrap_or(target.len())]
}

fn number(digits: &[u8]) -> Option<u64> {
    let all = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits)
        .ok()?
        .parse()
        .ok()
        .filter(|_| all)
}

/// `971211336.042` in milliseconds.
fn seconds(text: &[u8]) -> Option<i64> {
    let point = text.iter().position(|byte| *byte == b'.');
    let (whole, part) = text.split_at(point.unwrap_or(text.len()));
    let whole = i64::try_from(number(whole)?).ok()?;
    let ms = match part {
        [] => 0,
        [_, a, b, c] => number(&[*a, *b, *c])?,
        _ => return None,
    };
    whole.checked_mul(1_000)?.checked_add(ms as i64) // below 1000
}

/// `10/Oct/2000:20:55:36 +0000` in milliseconds.
fn common_time(text: &[u8]) -> Option<i64> {
    let [d0, d1, b'/', m0, m1, m2, b'/', rest @ ..] = text else {
        return None;
    };
    let [
        year @ ..,
        b':',
        h0,
        h1,
        b':',
        n0,
        n1,
        b':',
        s0,
        s1,
        b' ',
        sign,
        o0,
        o1,
        o2,
        o3,
    ] = rest
    else {
        return None;
    };
    let two = |a: &u8, b: &u8| number(&[*a, *b]).map(|number| number as u8);
    let unix_s = Civil {
        year: number(year).filter(|_| year.len() == 4)? as i64,
        month: Civil::month_of([*m0, *m1, *m2])?,
        day: two(d0, d1)?,
        hour: two(h0, h1)?,
        minute: two(n0, n1)?,
        second: two(s0, s1)?,
    }
    .unix_s()?;
    let ahead_s = i64::from(two(o0, o1)?) * 3_600 + i64::from(two(o2, o3)?) * 60;
    match sign {
        b'+' => Some((unix_s - ahead_s) * 1_000),
        b'-' => Some((unix_s + ahead_s) * 1_000),
        _ => None,
    }
}

/// `2026-11-21T16:48:38.123Z` in milliseconds.
fn rfc3339(text: &[u8]) -> Option<i64> {
    let (date, part) = text.strip_suffix(b"Z")?.split_at_checked(19)?;
    let at = |from: usize, to: usize| number(&date[from..to]);
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|(at, mark)| date[*at] != *mark) {
        return None;
    }
    let unix_s = Civil {
        year: at(0, 4)? as i64,
        month: at(5, 7)? as u8,
        day: at(8, 10)? as u8,
        hour: at(11, 13)? as u8,
        minute: at(14, 16)? as u8,
        second: at(17, 19)? as u8,
    }
    .unix_s()?;
    let ms = match part {
        [] => 0,
        [b'.', a, b, c] => number(&[*a, *b, *c])?,
        _ => return None,
    };
    Some(unix_s * 1_000 + ms as i64)
}
