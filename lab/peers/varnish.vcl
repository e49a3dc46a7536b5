# Varnish in front of an origin, with its defaults. The memory of its cache is an argument.
vcl 4.1;

backend default {
    .host = "@ORIGIN_IP@";
    .port = "@ORIGIN_PORT@";
}
