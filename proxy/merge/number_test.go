package merge

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
)

var numberSeeds = []string{
	"", "0", "-0", "1", "-1", "+1", "9", "12345678", "123456789", "1234567890123456", "9007199254740991", "9007199254740992",
	"9007199254740993", "9007199254740995",
	"18014398509481985", "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
	"100000000000000000000", "123456789012345678901234",
	"0.1", "0.2", "0.3", ".5", "5.", "1.5", "00.5", "007", "-00.25", "0.06666666666666667", "0.0000012345678901234567",
	"0.000000000000000000000000001", "0.000000000000000000000000", "-000.000000000000000000000000", "0.0000000000000000000000000001",
	"1.7976931348623157e308", "1.7976931348623159e308", "-1e999", "4.9e-324", "2.2250738585072011e-308", "1e-999", "1e22", "1e23",
	"123456.789e3", "1e+07", "1e-07", "1.234567890123456e+21",
	"NaN", "nan", "-NaN", "+Inf", "-Inf", "Inf", "inf", "Infinity", "-infinity", "0x1p-2", "0x1.8p3", "1_000", "0b1", "1e", "e1", "1.2.3",
	"1,5", " 1", "1 ", "1\"", "\"1\"", "１",
	"0.500000000000000166533453693773481063544750213623046875", "3.5844466002796428e+298", "8.41e+21", "1448997445238699", "6929495644600919.5", "0.9999999999999999", "4503599627370497.5",
	"9007199254740992.5", "9007199254740993.5", "900719925474099.35", "72057594037927945.5", "0.000000000000000000000000000000000001",
}

// sameFloat fails unless parseFloat and strconv agree about the text, in the value's bits and in
// whether it is a number.
func sameFloat(t *testing.T, text string) {
	t.Helper()
	want, wantErr := strconv.ParseFloat(text, 64)
	got, err := parseFloat([]byte(text))
	if (err == nil) != (wantErr == nil) || math.Float64bits(got) != math.Float64bits(want) {
		t.Fatalf("%q is %v (%x) %v, want %v (%x) %v", text, got, math.Float64bits(got), err, want, math.Float64bits(want), wantErr)
	}
	// And as it stands in an answer, whatever is behind it.
	if strings.ContainsAny(text, `"\`) {
		return
	}
	for _, tail := range []string{`"`, `"]`, `"],[1,"2"`, `"99999999`} {
		b := append([]byte("x"+text+tail), make([]byte, plainRoom)...)
		if got, end := plainFloat(b, 1); end != 0 &&
			(end != 1+len(text) || wantErr != nil || math.Float64bits(got) != math.Float64bits(want)) {
			t.Fatalf("%q followed by %q is %v, %d bytes, want %v %v", text, tail, got, end-1, want, wantErr)
		}
	}
}

func TestParseFloat(t *testing.T) {
	for _, text := range numberSeeds {
		sameFloat(t, text)
	}
	r := newRand(t)
	digits := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('0' + r.IntN(10))
		}
		return string(b)
	}
	for range 200000 {
		var text string
		switch r.IntN(8) {
		case 0: // every float64
			text = strconv.FormatFloat(math.Float64frombits(r.Uint64()), 'g', -1, 64)
		case 1: // as Prometheus writes those of human size
			text = string(AppendFloat(nil, math.Float64frombits(uint64(1023-30+r.IntN(110))<<52|r.Uint64()>>12)))
			text = strings.Trim(text, `"`)
		case 2:
			text = strconv.FormatFloat(r.ExpFloat64(), 'f', -1, 64)
		case 3:
			text = digits(r.IntN(26)) + "." + digits(r.IntN(26))
		case 4:
			text = digits(1 + r.IntN(25))
		case 5: // halfway between two floats, and next to it
			text = halfway(math.Float64frombits(uint64(1023-20+r.IntN(80))<<52|r.Uint64()>>12), r.IntN(3)-1)
		case 6:
			text = strings.Repeat("0", r.IntN(10)) + digits(r.IntN(4)) + "." + strings.Repeat("0", r.IntN(26)) + digits(r.IntN(20))
		case 7:
			text = digits(1+r.IntN(20)) + "e" + strconv.Itoa(r.IntN(80)-40)
		}
		sameFloat(t, text)
		sameFloat(t, "-"+text)
	}
}

// halfway is the text of the number in the middle between a float and the next, moved by a little.
func halfway(f float64, by int) string {
	a, b := new(big.Float).SetPrec(200).SetFloat64(f), new(big.Float).SetPrec(200).SetFloat64(math.Nextafter(f, math.Inf(1)))
	mid := a.Add(a, b)
	mid.Quo(mid, big.NewFloat(2))
	text := mid.Text('f', 40)
	text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	switch by {
	case 1:
		if !strings.Contains(text, ".") {
			text += "."
		}
		return text + "0000001"
	case -1:
		// One less in the last place, which is not zero.
		return text[:len(text)-1] + string(text[len(text)-1]-1) + "9"
	}
	return text
}

// TestQuotient holds the division against arithmetic without rounding.
func TestQuotient(t *testing.T) {
	r := newRand(t)
	for range 100000 {
		m := r.Uint64() >> r.IntN(64)
		if m == 0 {
			continue
		}
		e := r.IntN(len(fives))
		want, err := strconv.ParseFloat(fmt.Sprintf("%de-%d", m, e), 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := quotient(m, e); math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("%d/1e%d is %v, want %v", m, e, got, want)
		}
	}
}

func FuzzParseFloat(f *testing.F) {
	for _, text := range numberSeeds {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { sameFloat(t, text) })
}

// rationalMillis is what parseMillis promises, by rational numbers.
func rationalMillis(text string) (int64, bool) {
	v, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, false
	}
	if v.Mul(v, big.NewRat(1000, 1)); !v.IsInt() || !v.Num().IsInt64() {
		return 0, false
	}
	return v.Num().Int64(), true
}

func TestParseMillis(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int64
		ok   bool
	}{
		{"0", 0, true},
		{"-0", 0, true},
		{"1690000000.123", 1690000000123, true},
		{"1690000000", 1690000000000, true},
		{"1690000000.1", 1690000000100, true},
		{"1690000000.1230", 1690000000123, true},
		{"1690000000.1234", 0, false},
		{"1.69e9", 1690000000000, true},
		{"1.6900000001234e9", 0, false},
		{"16900000001234E-4", 0, false},
		{"16900000001230E-4", 1690000000123, true},
		{"-1.5", -1500, true},
		{"-0.001", -1, true},
		{"0.0001", 0, false},
		{"0e999999999999", 0, true},
		{"1e999999999999", 0, false},
		{"1e-999999999999", 0, false},
		{"9007199254740.993", 9007199254740993, true},
		{"100000000000000000", 0, false},
		{"99999999999999999999999999", 0, false},
	} {
		if got, ok := parseMillis([]byte(tc.text)); ok != tc.ok || ok && got != tc.want {
			t.Errorf("%s is %d %t, want %d %t", tc.text, got, ok, tc.want, tc.ok)
		}
	}
	r := newRand(t)
	for range 100000 {
		text := strconv.FormatInt(r.Int64()>>r.IntN(64), 10)
		if r.IntN(2) == 0 {
			text += "." + strings.Repeat("0", r.IntN(5)) + strconv.Itoa(r.IntN(1000)) + strings.Repeat("0", r.IntN(5))
		}
		if r.IntN(3) == 0 {
			text += "e" + strconv.Itoa(r.IntN(30)-15)
		}
		sameMillis(t, text)
	}
}

// sameMillis fails where parseMillis gives another time than arithmetic without bounds. It may
// refuse times beyond 18 digits, which is beyond the year 30,000,000.
func sameMillis(t *testing.T, text string) {
	t.Helper()
	want, wantOK := rationalMillis(text)
	got, ok := parseMillis([]byte(text))
	if ok && (!wantOK || got != want) || !ok && wantOK && want > -1e17 && want < 1e17 {
		t.Fatalf("%s is %d %t, want %d %t", text, got, ok, want, wantOK)
	}
	b := append([]byte("["+text+`,"1"]`), make([]byte, 2*fastRoom)...)
	if ms, j := pointMillis(b); j != 0 && (!wantOK || ms != want || j != len(text)+3) {
		t.Fatalf("%s is %d in a point, want %d %t", text, ms, want, wantOK)
	}
}
