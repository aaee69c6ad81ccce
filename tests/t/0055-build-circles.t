#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# Files of different rooms (folders) of the source may not need each other in a circle: one
# could not be read without the other. Calls and shared variables are taken from the symbols
# of the objects that the build left. Circles inside a room are listed, and counted; the
# plugin has none, not even inside.
use strict;
use warnings;

my $build = $ENV{ACCEL_BUILD} or bail('ACCEL_BUILD is not set');
my $source = $ENV{ACCEL_SRC} or bail('ACCEL_SRC is not set');
my $most_inside = 3; # circles inside a room today; lower it when one is opened
my $tests = 0;

sub bail {
    print "Bail out! $_[0]\n";
    exit 255;
}

sub ok {
    my ($good, $what, @notes) = @_;
    $tests++;
    print $good ? "ok $tests - $what\n" : "not ok $tests - $what\n";
    print "# $_\n" for @notes;
    return $good;
}

# runtime/ops/.libs/libaccel_core_la-add.o -> runtime/ops/add; the plugin's objects likewise
sub source_of {
    my ($object) = @_;
    $object =~ s,/\.libs/,/,;
    $object =~ s,/[^/]*_la-([^/]*)$,/$1,;
    $object =~ s/\.o$//;
    return $object;
}

# Objects without those of files that have moved, which an older build left.
sub with_source {
    return grep { -f "$source/" . source_of($_) . '.c' } @_;
}

# Fills what each file of these objects defines and needs.
sub read_symbols {
    my ($defined_in, $needs, @objects) = @_;
    my $file;
    for (split /\n/, `nm -A -g @objects`) {
        my ($object, $kind, $name) = /^([^:]+):\s*[0-9a-f]*\s+([A-Za-z])\s+(\S+)$/ or next;
        $file = source_of($object);
        if ($kind eq 'U') {
            push @{ $needs->{$file} }, $name;
        } else {
            $defined_in->{$name} = $file;
        }
    }
}

# Tarjan 1972: the strongly connected components with more than one file.
sub circles {
    my ($edges) = @_;
    my ($count, %index, %low, @stack, %waits, @found) = (0);
    my $visit;
    $visit = sub {
        my ($v) = @_;
        $index{$v} = $low{$v} = $count++;
        push @stack, $v;
        $waits{$v} = 1;
        for my $w (@{ $edges->{$v} || [] }) {
            if (!exists $index{$w}) {
                $visit->($w);
                $low{$v} = $low{$w} if $low{$w} < $low{$v};
            } elsif ($waits{$w} && $index{$w} < $low{$v}) {
                $low{$v} = $index{$w};
            }
        }
        return if $low{$v} != $index{$v};
        my @part;
        do { push @part, pop @stack; delete $waits{ $part[-1] } } while ($part[-1] ne $v);
        push @found, [sort @part] if @part > 1;
    };
    no warnings 'recursion';
    exists $index{$_} or $visit->($_) for sort keys %$edges;
    return @found;
}

# The files that each file needs.
sub edges_between {
    my (%defined_in, %needs, %edges);
    read_symbols(\%defined_in, \%needs, @_);
    for my $file (keys %needs) {
        my %to = map { $_ => 1 } grep { defined && $_ ne $file }
            map { $defined_in{$_} } @{ $needs{$file} };
        $edges{$file} = [sort keys %to];
    }
    return %edges;
}

sub rooms_of {
    my %rooms = map { m,(.*)/,; ($1 => 1) } @_;
    return scalar keys %rooms;
}

chdir $build or bail("no $build");
my @objects = grep { /\.libs/ || m,^runtime/common/, } with_source(
    split /\n/, `find runtime checkpoint -name '*.o' ! -path '*/cuda/*'`);
bail('no objects: the tree is not built') if @objects < 100;
my %edges = edges_between(@objects);
ok(keys %edges > 100, 'the objects name what they need (' . keys(%edges) . ' files)');
my @all = circles(\%edges);
my @between = grep { rooms_of(@$_) > 1 } @all;
my @inside = grep { rooms_of(@$_) == 1 } @all;
ok(!@between, 'no circle between files of different rooms', map { join ' ', @$_ } @between);
ok(@inside <= $most_inside, @inside . " circles inside rooms, at most $most_inside",
    map { join ' ', @$_ } @inside);

# The plugin: main_srun.c knows its files, and none of them knows it.
my @plugin = with_source(split /\n/, `find srun_plugin -name 'accel_spank_la-*.o'`);
if (@plugin) {
    my %plugin = edges_between(@plugin);
    my @found = circles(\%plugin);
    ok(!@found, 'no circle between files of srun_plugin (' . keys(%plugin) . ' files)',
        map { join ' ', @$_ } @found);
    my @users = grep { grep { $_ eq 'srun_plugin/main_srun' } @{ $plugin{$_} } } sort keys %plugin;
    ok("@users" eq 'srun_plugin/dispatch', 'main_srun.c is called by dispatch.c alone', "@users");
} else {
    $tests++;
    print "ok $tests # SKIP the plugin is not built\n";
}

# The finder itself.
my @one = circles({ 'a/x' => ['b/y'], 'b/y' => ['c/z'], 'c/z' => ['a/x'], 'd/w' => ['a/x'] });
ok(@one == 1 && "@{ $one[0] }" eq 'a/x b/y c/z', 'a circle of three is found, and no more');
ok(!circles({ 'a/x' => ['b/y', 'c/z'], 'b/y' => ['c/z'] }), 'a fork is none');
print "1..$tests\n";
exit 0;
