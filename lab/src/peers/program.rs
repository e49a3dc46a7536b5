//! The peers' programs: where Debian's packages have them, how they are started, and the templates of their
//! configurations, which are in `lab/peers/`.

use super::{Kind, Site, bare, fill, write_config};
use ackpace_lab_base::error::Result;
use std::path::Path;
use std::process::Command;

/// A program of a peer.
pub struct Program {
    /// Its path.
    pub path: &'static str,
    /// The package that provides it.
    pub package: &'static str,
    /// The option that makes it tell its version.
    pub version: &'static str,
    name: &'static str,
    template: &'static str,
    /// Arguments before that of its configuration, which is the last.
    args: &'static [&'static str],
}

const NGINX: Program = Program {
    path: "/usr/sbin/nginx",
    package: "nginx",
    version: "-v",
    name: "nginx.conf",
    template: include_str!("../../peers/nginx.conf"),
    args: &["-e", "stderr", "-p", "@SCRATCH@", "-c"],
};
const LIGHTTPD: Program = Program {
    path: "/usr/sbin/lighttpd",
    package: "lighttpd",
    version: "-v",
    name: "lighttpd.conf",
    template: include_str!("../../peers/lighttpd.conf"),
    args: &["-D", "-f"],
};
const H2O: Program = Program {
    path: "/usr/bin/h2o",
    package: "h2o",
    version: "-v",
    name: "h2o.conf",
    template: include_str!("../../peers/h2o.conf"),
    args: &["-m", "worker", "-c"],
};
const APACHE: Program = Program {
    path: "/usr/sbin/apache2",
    package: "apache2-bin", // the server alone: no service, no site
    version: "-v",
    name: "apache.conf",
    template: include_str!("../../peers/apache.conf"),
    args: &["-DFOREGROUND", "-f"],
};
const NGINX_GATEWAY: Program = Program {
    template: include_str!("../../peers/nginx-gateway.conf"),
    ..NGINX
};
const VARNISH: Program = Program {
    path: "/usr/sbin/varnishd",
    package: "varnish",
    version: "-V",
    name: "varnish.vcl",
    template: include_str!("../../peers/varnish.vcl"),
    args: &[
        "-F",
        "-j",
        "none",
        "-T",
        "none",
        "-n",
        "@SCRATCH@/varnish",
        "-a",
        "@IP@:@PORT@",
    ],
};
const HAPROXY: Program = Program {
    path: "/usr/sbin/haproxy",
    package: "haproxy",
    version: "-v",
    name: "haproxy.cfg",
    template: include_str!("../../peers/haproxy.cfg"),
    args: &["-db", "-f"],
};
const NGINX_PROXY: Program = Program {
    template: include_str!("../../peers/nginx-proxy.conf"),
    ..NGINX
};
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

impl Program {
    /// The program of a peer; `None` for ours, and for those of `nfs.rs`.
    pub fn of(kind: Kind) -> Option<&'static Self> {
        match kind {
            Kind::Ackpace | Kind::Gateway | Kind::Cluster => None,
            Kind::Nfs | Kind::Ganesha | Kind::PlainNfs => None,
            Kind::Haproxy => Some(&HAPROXY),
            Kind::NginxProxy => Some(&NGINX_PROXY),
            Kind::Nginx => Some(&NGINX),
            Kind::Lighttpd => Some(&LIGHTTPD),
            Kind::H2o => Some(&H2O),
            Kind::NginxGateway => Some(&NGINX_GATEWAY),
            Kind::Varnish => Some(&VARNISH),
            Kind::ApachePrefork => Some(&APACHE),
        }
    }

    /// The command that serves a site; writes its configuration first.
    pub fn command(&self, site: &Site, options: &[String]) -> Result<Command> {
        let path = write_config(site, self.name, &self.config(options))?;
        let places = site.places();
        let mut command = bare(self.path);
        let args = self.args.iter();
        command.args(args.map(|arg| fill(arg, &places)));
        if self.package == "varnish" {
            command.args(options).arg("-f");
        }
        command.arg(&path);
        Ok(command)
    }

    /// The configuration, with its placeholders for root, address and scratch unfilled.
    pub fn config(&self, options: &[String]) -> String {
        let (listen, mut lines): (Vec<&str>, Vec<&str>) = options
            .iter()
            .map(String::as_str)
            .partition(|option| option.starts_with("listen "));
        let listen = listen.iter().map(|option| &option["listen".len()..]);
        if !lines.is_empty() && self.package == "nginx" {
            lines.push(""); // for the last semicolon
        }
        let lines = lines.join(match self.package {
            "nginx" => ";\n    ",
            "varnish" => " ",
            "haproxy" => "\n    ",
            _ => "\n",
        });
        // What else it was told goes into the record as a comment.
        let arguments = match self.package {
            "varnish" => format!("\n# {} {lines}\n", self.args.join(" ")),
            _ => String::new(),
        };
        let places = [
            ("LISTEN", listen.collect::<String>()),
            ("LINES", lines),
            ("MODULES", apache_modules()),
        ];
        let places = places.each_ref().map(|(name, text)| (*name, text.as_str()));
        fill(self.template, &places) + &arguments
    }
}

/// Lines that load the modules of Apache that are files: some distributions compile them in.
fn apache_modules() -> String {
    let names = [
        "authz_core",
        "dir",
        "mime",
        "autoindex",
        "unixd",
        "mpm_prefork",
    ];
    let line = |name: &str| {
        let file = Path::new(APACHE_MODULES).join(format!("mod_{name}.so"));
        let line = format!("LoadModule {name}_module {}\n", file.display());
        file.exists().then_some(line)
    };
    names.into_iter().filter_map(line).collect()
}
