//! Fields that end at the next hop (RFC 9110 section 7.6.1): an intermediary forwards all others.

use super::fields::{Field, Fields, members};

/// Names in Connection; senders name one or two. Above: the message is refused, since each field is compared with each
/// name.
const CONNECTION_NAMES_MAX: usize = 32;

/// The fields to forward, in order, as pairs of name and value.
///
/// # Errors
/// A sentence if Connection names more than 32 fields.
pub(super) fn end_to_end<'a>(
    fields: &Fields<'a>,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a>, &'static str> {
    let named = members(fields.values(Field::Connection));
    let named: Vec<_> = named.take(CONNECTION_NAMES_MAX + 1).collect();
    if named.len() > CONNECTION_NAMES_MAX {
        return Err("Connection names too many fields.");
    }
    Ok(fields.iter().filter(move |(name, _)| {
        let is_named = named.iter().any(|other| name.eq_ignore_ascii_case(other));
        !is_named && !ends_here(name)
    }))
}

fn ends_here(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 6] = [
        b"connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    ];
    let proxy = name.get(..b"proxy-".len());
    proxy.is_some_and(|start| start.eq_ignore_ascii_case(b"proxy-"))
        || NAMES.iter().any(|other| name.eq_ignore_ascii_case(other))
}
