//! NFS version 3 and MOUNT version 3 for what is served (RFC 1813): [`served`] carries out calls.

pub mod served;
