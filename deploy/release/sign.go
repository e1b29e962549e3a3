package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
)

// readKey reads a key from a file: ECDSA on P-256, as `openssl ecparam -genkey` and `openssl
// genpkey` write it.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("-sign: %w", err)
	}
	for {
		block, rest := pem.Decode(b)
		if block == nil {
			return nil, fmt.Errorf("-sign %s: there is no key in it; write an ECDSA key on P-256, PEM: openssl ecparam -name prime256v1 -genkey -noout", path)
		}
		b = rest
		if strings.Contains(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "" {
			return nil, fmt.Errorf("-sign %s: the key is encrypted; leave -sign away, and sign %s with the tool that has the key", path, checksums)
		}
		var key any
		switch block.Type {
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		default: // EC PARAMETERS stands before the key
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("-sign %s: %w", path, err)
		}
		if k, ok := key.(*ecdsa.PrivateKey); ok && k.Curve == elliptic.P256() {
			return k, nil
		}
		return nil, fmt.Errorf("-sign %s: it is no ECDSA key on P-256", path)
	}
}

// sign is a signature over the SHA-256 of text, ASN.1, in base64: what openssl verifies once it is
// decoded, and cosign as it is.
func sign(key *ecdsa.PrivateKey, text []byte) ([]byte, error) {
	sum := sha256.Sum256(text)
	signature, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	return []byte(base64.StdEncoding.EncodeToString(signature) + "\n"), nil
}
