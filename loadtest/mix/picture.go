package mix

import "io"

func (r *Result) WriteSVG(w io.Writer) error { return nil }
func (r *Result) WritePNG(w io.Writer) error { return nil }
