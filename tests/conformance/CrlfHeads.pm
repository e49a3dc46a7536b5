package CrlfHeads;

# Ends the lines of request heads in CRLF before they are sent.
#
# The nginx test suite writes its requests with a bare LF, which RFC 9112
# section 2.2 lets a server accept and ackpace refuses on purpose. Load it with
# PERL5OPT="-I DIR -MCrlfHeads". A head whose request line ends in CRLF is the
# suite's own choice of line ends and stays as it is; so do bodies.

use strict;
use warnings;

use IO::Socket::INET;
use IO::Socket::UNIX;

sub with_crlf {
    my ($data) = @_;
    my $out = '';

    # Each head of a pipeline, and what follows the last one.
    while ($data =~ /\A([A-Za-z]+ [^\r\n]* HTTP\/[^\r\n]*\n(?:[^\r\n]+\r?\n)*)(\n|\z)/) {
        my ($head, $end) = ($1, $2);
        $data = substr($data, length($head) + length($end));
        (my $lines = $head . $end) =~ s/\r?\n/\r\n/g;
        $out .= $lines;
        last if $end eq '' or $head =~ /^(?:content-length|transfer-encoding)\s*:/im;
    }

    return $out . $data;
}

{
    no warnings 'redefine';

    for my $class ('IO::Socket::INET', 'IO::Socket::UNIX') {
        no strict 'refs';
        *{"${class}::print"} = sub {
            my $self = shift;
            return IO::Handle::print($self, with_crlf(join '', @_));
        };
    }
}

1;
