import time, statistics, torch, sys
from sharedqkv import SharedQKVConfig, SharedQKVForMaskedLM
layers=int(sys.argv[1]); rows=int(sys.argv[2]); length=int(sys.argv[3]); dev="cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
V=30522
def make(variant, attn):
    torch.manual_seed(0)
    c=SharedQKVConfig.from_size("base",attention_variant=variant,vocab_size=V,num_hidden_layers=layers,hidden_dropout_prob=0.0,attention_probs_dropout_prob=0.0)
    m=SharedQKVForMaskedLM(c)
    m.set_attn_implementation(attn)
    m=m.to(dev).train()
    return m, torch.compile(m), torch.optim.AdamW(m.parameters(),lr=1e-4,fused=dev=="cuda")
ids=torch.randint(5,V,(rows,length),device=dev)
k=max(1,int(0.15*length))
pos=torch.stack([torch.randperm(length,device=dev)[:k] for _ in range(rows)]).sort(1).values
labels=ids.gather(1,pos)
def step(t):
    m,c,o=t
    with torch.autocast(dev,torch.bfloat16):
        loss=c(input_ids=ids,masked_positions=pos,labels=labels).loss
    loss.backward(); torch.nn.utils.clip_grad_norm_(m.parameters(),1.0); o.step(); o.zero_grad(); return loss
ts={}
for name,(v,a) in {"standard sdpa":("standard","sdpa"),"shared sdpa":("shared","sdpa"),"shared fused":("shared","fused")}.items():
    b=time.time(); ts[name]=make(v,a); l=step(ts[name]); print(name,"first loss",float(l),"compile s",round(time.time()-b,1),flush=True)
def sync():
    if dev=="cuda": torch.cuda.synchronize()
times={n:[] for n in ts}
N=20 if dev=="cuda" else 1
for r in range(8 if dev=="cuda" else 1):
    for n,t in ts.items():
        for _ in range(2): step(t)
        sync(); b=time.time()
        for _ in range(N): step(t)
        sync(); times[n].append((time.time()-b)/N)
for n,x in times.items(): print(f"{n}: {1e3*statistics.median(x[1:] or x):.2f} ms, {rows*length/statistics.median(x[1:] or x)/1e6:.3f} M tok/s, spread {1e3*(max(x)-min(x)):.2f}")
if dev=="cuda":
    for n,t in ts.items():
        torch.cuda.reset_peak_memory_stats(); base=torch.cuda.memory_allocated(); step(t); print(n,"activation GiB",(torch.cuda.max_memory_allocated()-base)/2**30)
