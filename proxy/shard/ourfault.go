package shard

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"strings"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// ourFault is the failure of a call for what Spillway's configuration of the server says: a file of
// credentials that cannot be read, a certificate that is not trusted or not taken, TLS where there
// is none. The server may be well, and its log tells little. nil where the error is another one.
func (r *Replica) ourFault(err error) *qerr.Error {
	var file *fs.PathError
	var untrusted *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var remote *net.OpError
	refused := func(advice, format string, args ...any) *qerr.Error {
		e := qerr.Wrap(qerr.ShardFailed, err, format, args...)
		e.Advice = advice
		return e
	}
	switch {
	case errors.As(err, &file):
		return refused("look at the files that its http_client names, and at who may read them: they are read anew each time",
			"Spillway cannot read %s, which it needs to ask %s: %s", filepath.Base(file.Path), r.Name(), file.Err)
	case strings.Contains(err.Error(), "invalid header field value"):
		return refused("write the credentials of its http_client as one line, without control characters",
			"Spillway's credentials for %s have a character that no header may have", r.Name())
	case errors.As(err, &untrusted):
		return refused("set tls_config.ca_file of its http_client to the authority that signed the certificate, "+
			"or server_name to a name in it",
			"%s shows a certificate that Spillway does not trust: %s", r.Name(), cleaned(untrusted.Err.Error()))
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return refused("write http:// in its url, or give it a certificate",
			"%s does not speak TLS at the address that its url has", r.Name())
	case errors.As(err, &remote) && remote.Op == "remote error" && strings.HasPrefix(remote.Err.Error(), "tls: "):
		return refused("look at tls_config.cert_file and key_file of its http_client, "+
			"and at the authority that the server asks of its clients",
			"%s ends the TLS handshake with Spillway: %s", r.Name(), strings.TrimPrefix(remote.Err.Error(), "tls: "))
	}
	return nil
}
