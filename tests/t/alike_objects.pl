#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
#
# Copies the objects of one build into another of the same source that is configured with less:
# those that cannot differ. In: the source, the build, and the folder of the other, configured with
# the same prefix, and empty. An object cannot differ if it includes no header of an optional
# library and none of its files asks what configure has found. Dependencies are those that make
# noted when it compiled it; an object without them is left out, and compiled there.
use strict;
use warnings;
use Cwd qw(abs_path);
use File::Copy qw(copy);
use File::Find qw(find);
use File::Path qw(make_path);

my $optional = qr{/(?:ucp|uct|ucs|hdf5|slurm|pmix\d*|cuda|nccl|mpi|openmpi)[/.]};
my $defined = qr/\bHAVE_[A-Z0-9]+\b/;

my ($source, $build, $other) = map { abs_path($_) } @ARGV;
my %differs; # by file

sub slurp {
    my ($path) = @_;
    open(my $in, '<', $path) or return undef;
    local $/;
    return scalar <$in>;
}

sub file_differs {
    my ($file) = @_;
    if (!defined $differs{$file}) {
        my $text = slurp("$source/$file");
        $text = slurp("$build/$file") if !defined $text; # generated
        $differs{$file} = !defined $text || $text =~ $defined ? 1 : 0;
    }
    return $differs{$file};
}

# Times are kept: make compares them.
sub take {
    my ($name) = @_;
    my ($dir) = $name =~ m{^(.*)/};
    my @stat = stat "$build/$name" or return;
    make_path("$other/$dir");
    copy("$build/$name", "$other/$name") or die "cannot write $other/$name: $!\n";
    utime $stat[8], $stat[9], "$other/$name";
}

sub consider {
    my ($deps) = @_;
    my ($dir, $name) = $deps =~ m{^(.*)/\.deps/(.*)\.Pl?o$} or return;
    my $text = slurp("$build/$deps");
    my ($files) = $text =~ /^\S+: ((?:[^\n]*\\\n)*[^\n]*)/ or return;
    my @files = grep { length } split /[\s\\]+/, $files;
    return if grep { m{^/} ? $_ =~ $optional : file_differs($_) } @files;
    take("$dir/$_") for '.dirstamp', '.deps/.dirstamp', "$name.lo", "$name.o", ".libs/$name.o";
}

chdir $build or die "no $build: $!\n";
my @deps;
for my $stage (grep { -d } qw(runtime checkpoint cli srun_plugin examples tests)) {
    find({ no_chdir => 1, wanted => sub { push @deps, $_ if /\.Pl?o$/ } }, $stage);
}
consider($_) for @deps;
