// Package program builds the product's program for a platform, the same for whoever packs it: the
// image (deploy/image) and the archives of a release (deploy/release) have one and the same file.
//
// It promises that two builds of one commit by one Go release are equal byte for byte, wherever
// they are made, and that the list of what is in a program (BOM) is what the program itself says.
//
// It refuses a tree without git where the version, the commit and its time are not given.
//
// It holds the lists of modules; the compiler is a process of its own.
package program
