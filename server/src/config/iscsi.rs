//! What the options of a unit say together.

use crate::options::ServeOptions;

/// What is wrong with them: the key of the option that is to be mended, and why.
pub fn wrong(options: &ServeOptions) -> Option<(&'static str, String)> {
    let iscsi = &options.iscsi;
    let said = |text: &str| text != "off";
    let user = said(&iscsi.iscsi_user);
    let secret = iscsi.iscsi_secret_file.as_os_str() != "off";
    let target_user = said(&iscsi.iscsi_target_user);
    let target_secret = iscsi.iscsi_target_secret_file.as_os_str() != "off";
    let fail = |key: &'static str, text: &str| Some((key, text.to_owned()));
    if !iscsi.is_on() {
        let alone = [
            ("iscsi_user", user),
            ("iscsi_secret_file", secret),
            ("iscsi_target_user", target_user),
            ("iscsi_target_secret_file", target_secret),
        ];
        let alone = alone.iter().find(|(_, is_given)| *is_given);
        return alone.and_then(|&(key, _)| {
            fail(
                key,
                "there is no unit that would need it: give iscsi, too, or leave this out",
            )
        });
    }
    if options.nfs_options.nfs.is_empty() {
        return fail(
            "iscsi",
            "NFS alone reads from a unit: give nfs, too, or leave this out",
        );
    }
    if options.has_origin() {
        return fail(
            "iscsi",
            "an origin does not lie on a unit: serve the folder at which ackpace-host gateway has mounted it",
        );
    }
    if options.cluster.is_on() {
        return fail(
            "iscsi",
            "a node of a cluster can't read from a unit in this version: leave one out",
        );
    }
    match (user, secret, target_user, target_secret) {
        (true, false, ..) => fail(
            "iscsi_user",
            "its secret is missing: give iscsi_secret_file, too",
        ),
        (false, true, ..) => fail(
            "iscsi_secret_file",
            "whose secret is it? Give iscsi_user, too",
        ),
        (_, _, true, false) => fail(
            "iscsi_target_user",
            "its secret is missing: give iscsi_target_secret_file, too",
        ),
        (_, _, false, true) => fail(
            "iscsi_target_secret_file",
            "whose secret is it? Give iscsi_target_user, too",
        ),
        (false, _, true, _) => fail(
            "iscsi_target_user",
            "a target proves who it is to a user only: give iscsi_user, too",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }

    #[test]
    fn a_unit_is_for_nfs_and_its_users_have_secrets() {
        const UNIT: &str = "--iscsi iscsi://192.0.2.1/iqn.2026-01.org.example:disk/1";
        let of = |words: &str| {
            let words = ["ackpace"].into_iter().chain(words.split_whitespace());
            wrong(&Line::parse_from(words).options).map(|(key, _)| key)
        };
        let nfs = |words: &str| of(&format!("{UNIT} --nfs 127.0.0.1:2049 {words}"));
        assert_eq!((of(""), nfs("")), (None, None));
        assert_eq!(of(UNIT), Some("iscsi"));
        assert_eq!(nfs("http://192.0.2.1/"), Some("iscsi"));
        assert_eq!(of("--iscsi-user a"), Some("iscsi_user"));
        assert_eq!(nfs("--iscsi-user a"), Some("iscsi_user"));
        assert_eq!(nfs("--iscsi-secret-file a"), Some("iscsi_secret_file"));
        let own = "--iscsi-user a --iscsi-secret-file a";
        assert_eq!(nfs(own), None);
        let target = "--iscsi-target-user b --iscsi-target-secret-file b";
        assert_eq!(nfs(target), Some("iscsi_target_user"));
        assert_eq!(nfs(&format!("{own} {target}")), None);
        let half = format!("{own} --iscsi-target-user b");
        assert_eq!(nfs(&half), Some("iscsi_target_user"));
    }
}
