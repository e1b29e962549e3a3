// Package manual writes the man pages and the completions of a command line (bash, zsh, fish) from
// its own definition, so that neither can tell of a flag that is not there.
//
// It promises one page for the program and one for each command, with every flag that people may
// see, and the same bytes each time. The completions ask the program itself what there is: kingpin
// answers that, and has the scripts for bash and zsh; the one for fish is made here. So they fit
// whichever version is installed.
//
// It refuses nothing: a text of the command line is never read as an instruction of roff.
//
// It holds the pages, some tens of kilobytes.
package manual
