// Package report shows what a load test has measured: memory over time and the fate of every
// request, asked directly and through Spillway, side by side.
//
// A Report is plain data: a title, two runs (or one, or several), and for each run the resident
// memory (RSS) of every process over time, the requests with their outcomes, and where there were
// people beside the storm, how long their answers took over time. It is written as
//
//   - an aligned table for a terminal (WriteText),
//   - one HTML page that needs no other file (WriteHTML),
//   - the picture alone, as SVG (WriteSVG) or PNG (WritePNG), 900 pixels wide, for a README.
//
// Save chooses by the name of a file. The same report gives the same bytes: nothing here reads a
// clock, the network or a map's order.
//
// It refuses reports with which a picture would lie (Validate): samples that go back in time, a run
// without samples, a process that died before its last sample.
//
// Memory: a picture draws at most 400 points for each curve, whatever was sampled; of the points
// that share a place the highest is drawn, so a peak is never lost.
package report
