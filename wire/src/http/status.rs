//! The status codes that this server sends (RFC 9110 section 15), and a refusal with its reason.

/// The status code of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// The whole representation follows.
    Ok = 200,
    /// Nothing follows (OPTIONS).
    NoContent = 204,
    /// One or several ranges follow.
    PartialContent = 206,
    /// The resource has moved permanently; a client may turn POST into GET.
    MovedPermanently = 301,
    /// The resource has moved temporarily; a client may turn POST into GET.
    Found = 302,
    /// The client's copy is current.
    NotModified = 304,
    /// The request breaks the grammar or is ambiguous.
    BadRequest = 400,
    /// The file exists, but this client may not have it, or it is not a regular file.
    Forbidden = 403,
    /// Nothing is at this path, or something hidden.
    NotFound = 404,
    /// A known method that a file server does not serve.
    MethodNotAllowed = 405,
    /// If-Match or If-Unmodified-Since did not hold.
    PreconditionFailed = 412,
    /// The target is longer than [`crate::limits::TARGET_BYTES_MAX`].
    UriTooLong = 414,
    /// No requested range lies inside the file.
    RangeNotSatisfiable = 416,
    /// An Expect other than 100-continue.
    ExpectationFailed = 417,
    /// The head is longer, or has more fields, than the server accepts.
    HeaderFieldsTooLarge = 431,
    /// The server failed, most likely because of its disk.
    InternalServerError = 500,
    /// An unknown method or transfer coding.
    NotImplemented = 501,
    /// The origin's response is malformed or not what was asked for.
    BadGateway = 502,
    /// The server is out of a resource or is shutting down.
    ServiceUnavailable = 503,
    /// The origin did not answer in time, or the client wanted a stored response alone.
    GatewayTimeout = 504,
    /// Neither HTTP/1.0 nor HTTP/1.1.
    VersionNotSupported = 505,
}

impl Status {
    /// Every status, for tables and tests.
    pub const ALL: [Self; 21] = [
        Self::Ok,
        Self::NoContent,
        Self::PartialContent,
        Self::MovedPermanently,
        Self::Found,
        Self::NotModified,
        Self::BadRequest,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::PreconditionFailed,
        Self::UriTooLong,
        Self::RangeNotSatisfiable,
        Self::ExpectationFailed,
        Self::HeaderFieldsTooLarge,
        Self::InternalServerError,
        Self::NotImplemented,
        Self::BadGateway,
        Self::ServiceUnavailable,
        Self::GatewayTimeout,
        Self::VersionNotSupported,
    ];

    /// The three digits as a number.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// Code and reason phrase, as they stand in the status line.
    pub const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::NoContent => "204 No Content",
            Self::PartialContent => "206 Partial Content",
            Self::MovedPermanently => "301 Moved Permanently",
            Self::Found => "302 Found",
            Self::NotModified => "304 Not Modified",
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::PreconditionFailed => "412 Precondition Failed",
            Self::UriTooLong => "414 URI Too Long",
            Self::RangeNotSatisfiable => "416 Range Not Satisfiable",
            Self::ExpectationFailed => "417 Expectation Failed",
            Self::HeaderFieldsTooLarge => "431 Request Header Fields Too Large",
            Self::InternalServerError => "500 Internal Server Error",
            Self::NotImplemented => "501 Not Implemented",
            Self::BadGateway => "502 Bad Gateway",
            Self::ServiceUnavailable => "503 Service Unavailable",
            Self::GatewayTimeout => "504 Gateway Timeout",
            Self::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }

    /// True if the connection must not be reused after this status, whatever the client asked. Either the start
    /// of the next request is unknown, or waiting for that request is what failed.
    pub const fn closes(self) -> bool {
        matches!(
            self,
            Self::BadRequest
                | Self::UriTooLong
                | Self::HeaderFieldsTooLarge
                | Self::VersionNotSupported
        )
    }
}

/// A refused request: the status and the reason of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The status to answer with.
    pub status: Status,
    /// One sentence for the log and for the body.
    pub why: &'static str,
}

impl Reject {
    /// A 400 with its reason.
    pub const fn bad(why: &'static str) -> Self {
        Self {
            status: Status::BadRequest,
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn every_status_line_starts_with_its_own_code() {
        for status in Status::ALL {
            assert!(status.line().starts_with(&status.code().to_string()));
        }
    }
}
