#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# Names and comments where a machine can judge them (CONTRIBUTING.md): file names that occur
# once, static functions that a backtrace tells apart, one name for a status, results that end
# in _out, comments that fit and that are there. Tests are not judged, the source is.
use strict;
use warnings;
use File::Basename qw(basename dirname);

my $most_files = 3;    # files that may have a static function of the same name
my $columns = 88;      # of a comment line, as of code
my $public = qr{^runtime/accel\w*\.h$|^examples/}; # its parameters are part of the interface
my $least = 0.2;       # comment lines per code line, over all rooms
my $tests = 0;

sub ok {
    my ($good, $what, @notes) = @_;
    $tests++;
    print $good ? "ok $tests - $what\n" : "not ok $tests - $what\n";
    print "# $_\n" for $good ? () : @notes;
    return $good;
}

if (!defined $ENV{ACCEL_SRC} || !chdir $ENV{ACCEL_SRC}) {
    print "Bail out! ACCEL_SRC names no directory\n";
    exit 255;
}
# One file of the manual pages is generated into a build in the tree.
my @files = sort grep { !m{cli/man/api_functions\.c$} } split /\n/,
    `find runtime checkpoint srun_plugin cli examples -name '*.[ch]' -o -name '*.cu' -o -name '*.cc'`;

# The lines of a file with comments as [1, text] and code as [0, text]; blank ones are left
# out. A line with code and a comment behind it is code.
sub lines_of {
    my ($file) = @_;
    open(my $in, '<', $file) or die "cannot read $file: $!\n";
    my ($inside, @lines) = (0);
    while (my $line = <$in>) {
        chomp $line;
        next if $line =~ /^\s*$/;
        my $comment = $inside || $line =~ m{^\s*(?:/\*|//)};
        $inside = 1 if $line =~ m{^\s*/\*};
        $inside = 0 if $line =~ m{\*/};
        push @lines, [$comment ? 1 : 0, $line, $.];
    }
    close $in;
    return @lines;
}

my %homes;
push @{ $homes{ basename($_) } }, $_ for @files;
ok(!grep({ @{ $homes{$_} } > 1 } keys %homes), 'no file name occurs twice in the source',
    map { "$_: @{ $homes{$_} }" } grep { @{ $homes{$_} } > 1 } sort keys %homes);

my (%static, @wide, @status, @results, %comment, %code);
for my $file (@files) {
    my $room = dirname($file);
    my $text = '';
    for (lines_of($file)) {
        my ($is_comment, $line, $number) = @$_;
        ($is_comment ? $comment{$room} : $code{$room})++;
        push @wide, "$file:$number" if $is_comment && length $line > $columns;
        $text .= "$line\n" if !$is_comment;
    }
    $text =~ s/__launch_bounds__\([^)]*\)//g;
    $static{$1}{$file} = 1 while $text =~ /^static\b[^;={}()]*?\b(\w+)\([^;{}]*\)\s*\{/mg;
    # A second status beside st says whose it is; these names say nothing. Members of a
    # struct are no variables.
    (my $bodies = $text) =~ s/^(?:typedef |static const )?struct\b[^;{()]*\{.*?^\}//msg;
    push @status, "$file: $1"
        while $bodies =~ /^    accel_status_t (?:\w+, )*(s|status|ret|rc|r|rv|res|result)\b[^()]*;/mg;
    # A pointer to a pointer is a result; char ** is a list of words.
    while ($text =~ /^[a-z][\w \*]*?\b(\w+)\(([^;{}]*)\)(?:;|\s*\{)/mg) {
        my ($name, $args) = ($1, $2);
        push @results, "$file: $name($1)"
            while $file =~ /\.h$/ && $file !~ $public && $args =~ /\b(?:struct \w+|accel_\w+_t|void) \*\*(\w+)\b(?<!_out)/g;
    }
}
my @common = grep { keys %{ $static{$_} } > $most_files } sort keys %static;
ok(!@common, "no static function has the same name in more than $most_files files",
    map { "$_: @{[sort keys %{ $static{$_} }]}" } @common);
ok(!@wide, "no comment line is longer than $columns columns", @wide);
ok(!@status, 'a status variable is st', @status);
ok(!@results, 'a result that is a pointer ends in _out', @results);

my ($comments, $codes) = (0, 0);
for my $room (sort keys %code) {
    $comments += $comment{$room} || 0;
    $codes += $code{$room};
    printf "# %-32s %5d lines of code, %.3f comment lines each\n", $room, $code{$room},
        ($comment{$room} || 0) / $code{$room};
}
ok($comments >= $least * $codes,
    sprintf('%.3f comment lines per code line, at least %.1f', $comments / $codes, $least));
print "1..$tests\n";
