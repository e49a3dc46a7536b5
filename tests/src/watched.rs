//! A server that is watched by its metrics and its admin socket.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

use crate::{
    Disk, Outcome, Server, Setup, Tree, Words, command, pattern, rested, run, server_binary,
};

/// A server with metrics and an admin socket. It serves `/big`, of [`Watched::BIG_BYTES`], and `/a`, `0123456789`.
pub struct Watched {
    /// The server.
    pub server: Server,
    /// Its directory; what it serves is `site` in there.
    pub tree: Tree,
    /// The path of its admin socket.
    pub admin: PathBuf,
}

impl Deref for Watched {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Watched {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

impl Watched {
    /// The length of `/big`.
    pub const BIG_BYTES: usize = 32 << 20;

    /// Starts it with these options.
    pub fn start(args: &(impl Words + ?Sized)) -> Watched {
        Watched::start_with(Watched::BIG_BYTES, None, args)
    }

    /// The same with another length of `/big`, and with the files of this disk below `/disk`.
    pub fn start_with(
        big_bytes: usize,
        disk: Option<&Disk>,
        args: &(impl Words + ?Sized),
    ) -> Watched {
        let tree = Tree::new();
        tree.file("site/big", pattern(big_bytes, 3));
        rested(&tree.file("site/a", "0123456789"));
        let admin = tree.at("admin.sock");
        let path = admin.to_str().expect("UTF-8").to_owned();
        let watching = ["--metrics", "0", "--admin", &path];
        let setup = Setup::new(tree.at("site")).args(&watching).args(args);
        let server = match disk {
            Some(disk) => disk.served_at(&tree.dir("site/disk"), setup).start(),
            None => setup.start(),
        };
        Watched {
            server,
            tree,
            admin,
        }
    }

    /// Runs a subcommand of `ackpace` that asks its admin socket.
    pub fn ackpace(&self, args: &(impl Words + ?Sized)) -> Outcome {
        let args = args.words();
        let mut command = command(server_binary());
        command.arg(&args[0]).arg("--admin").arg(&self.admin);
        run(command.args(&args[1..]))
    }
}
