package uses

import (
	"encoding/binary"
	"testing"
	"unicode/utf16"
)

// Exports by way of PowerShell are in UTF-16. In a folder with others they were passed over.
func TestUTF16(t *testing.T) {
	const board = `{"title": "T", "schemaVersion": 39, "panels": [{"type": "timeseries", "title": "Größe", "targets": [{"expr": "a_m"}]}]}`
	for name, order := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
		var text []byte
		for _, unit := range utf16.Encode([]rune("\ufeff" + board)) {
			text = order.AppendUint16(text, unit)
		}
		set := new(Set)
		dir := folder(t, "a.json", string(text), "b.json", `{"title": "U", "panels": [{"title": "p", "targets": [{"expr": "b_m"}]}]}`)
		if err := Dashboards(set, dir); err != nil || len(set.Uses) != 2 || set.Uses[0].Query != "a_m" ||
			set.Uses[0].Where != "dashboard T, panel Größe" {
			t.Errorf("%s: %v %v %q", name, err, set.lines(dir), set.Warnings)
		}
	}
}
