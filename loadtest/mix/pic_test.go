package mix
import ("testing";"os";"encoding/json")
func TestPic(t *testing.T){
	b,err:=os.ReadFile("/tmp/mixtry/out-push/mix.json"); if err!=nil{t.Fatal(err)}
	var r Result
	if err:=json.Unmarshal(b,&r);err!=nil{t.Fatal(err)}
	if err:=r.Save("/tmp/mixtry/pic");err!=nil{t.Fatal(err)}
}
