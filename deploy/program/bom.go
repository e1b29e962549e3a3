package program

import (
	"bytes"
	"debug/buildinfo"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// BOM lists what a program is linked from, as it says itself (go version -m): its module, all
// others and the Go release, as a software bill of materials (CycloneDX 1.6, JSON). It has no
// serial number and the commit's time, so that it is the same each time. What it lists the parts of
// is the program by its package, since one module has several.
func BOM(s Source, path string) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	main := component(&debug.Module{Path: info.Main.Path, Version: s.Version})
	main.Type, main.Name = cdx.ComponentTypeApplication, info.Path
	if below, ok := strings.CutPrefix(info.Path, info.Main.Path+"/"); ok {
		main.PackageURL += "#" + below
		main.BOMRef = main.PackageURL
	}
	list := []cdx.Component{{
		BOMRef: "pkg:golang/std@" + info.GoVersion, Type: cdx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion,
		PackageURL: "pkg:golang/std@" + info.GoVersion,
	}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, component(m))
	}
	out := cdx.NewBOM()
	out.Metadata = &cdx.Metadata{Timestamp: s.Created.Format("2006-01-02T15:04:05Z"), Component: &main}
	out.Components = &list
	var b bytes.Buffer
	enc := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON)
	enc.SetPretty(true)
	if err := enc.EncodeVersion(out, cdx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// component is a Go module by its package URL (purl specification, type golang).
func component(m *debug.Module) cdx.Component {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url}
}
