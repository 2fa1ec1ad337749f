(()=>{var Xe="http://www.w3.org/2000/svg",ie=new WeakMap;function i(t,e,...n){return{tag:t,props:e||{},children:Ze(n)}}function E(t,...e){
let n=Ze(e),o=t.contains(document.activeElement)?document.activeElement:null;ie.has(t)||t.replaceChildren(),ce(t,ie.get(
t)||[],n,t.namespaceURI===Xe),ie.set(t,n),o?.isConnected&&o!==document.activeElement&&o.focus({preventScroll:!0})}function A(t){return String(t).replace(_s,"\uFFFD")}var _s=/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
function Ze(t){let e=[];for(let n of t.flat(1/0))n==null||typeof n=="boolean"||e.push(typeof n=="object"?n:A(n));return e}
function ce(t,e,n,o){let s=Array.from(t.childNodes).slice(0,e.length),r=xs(e,n),a=new Set(r);e.forEach((u,c)=>{a.has(c)||
s[c].remove()});let l=t.firstChild;n.forEach((u,c)=>{let f=r[c],d=f===-1?Os(u,o):Ss(s[f],e[f],u,o);d===l?l=l.nextSibling:
t.insertBefore(d,l)})}function xs(t,e){let n=new Map;t.forEach((s,r)=>{Rt(s)!==void 0&&n.set(Rt(s),r)});let o=new Set;return e.
map((s,r)=>{let a=Rt(s),l=a===void 0?r:n.get(a)??-1;return l===-1||l>=t.length||o.has(l)||!Ts(t[l],s)?-1:(o.add(l),l)})}
function Rt(t){return typeof t=="object"&&t.props.key!==null?t.props.key:void 0}function Ts(t,e){return typeof t!=typeof e?
!1:typeof e!="object"||t.tag===e.tag&&Rt(t)===Rt(e)}function Ss(t,e,n,o){if(typeof n!="object")return e!==n&&(t.nodeValue=
n),t;let s=o||n.tag==="svg";return Je(t,e.props,n.props),ce(t,e.children,n.children,s),t}function Os(t,e){if(typeof t!="\
object")return document.createTextNode(t);let n=e||t.tag==="svg",o=n?document.createElementNS(Xe,t.tag):document.createElement(
t.tag);return Je(o,{},t.props),ce(o,[],t.children,n),o}function Je(t,e,n){for(let o of Object.keys(e))o in n||Ve(t,o,null,
e[o]);for(let o of Object.keys(n))e[o]!==n[o]&&Ve(t,o,n[o],e[o])}function Ve(t,e,n,o){if(e!=="key"){if(e==="style")return Ms(
t,n||{},o||{});e.startsWith("on")?t[e.toLowerCase()]=n||null:e==="value"&&"value"in t?t.value!==n&&(t.value=n):n==null||
n===!1?t.removeAttribute(e):t.setAttribute(e,n===!0?"":A(n))}}function Ms(t,e,n){for(let o of Object.keys(n))o in e||t.style.
removeProperty(o);for(let o of Object.keys(e))n[o]!==e[o]&&t.style.setProperty(o,String(e[o]))}var Qe=[[1,1,"s"],[.001,1e3,"ms"],[1e-6,1e6,"\xB5s"]];function T(t,e=3){return g(t)?en.format(Number.isInteger(t)?t:Number(
t.toPrecision(e))):"\u2013"}var en=new Intl.NumberFormat("en-US",{maximumSignificantDigits:21});function g(t){return typeof t==
"number"&&Number.isFinite(t)}function N(t){if(!g(t))return"\u2013";if(t===0)return"0 s";let e=Math.abs(t);if(e>=120)return B(
t);let[,n,o]=Qe.find(([s])=>e>=s*.9995)||Qe[2];return`${T(t*n)} ${o}`}function B(t){if(!g(t))return"\u2013";if(t<0)return`\
\u2212${B(-t)}`;if(t<10)return`${T(Math.round(t*10)/10)} s`;let e=Math.round(t);if(e<60)return`${e} s`;if(e<3600)return ue(
e,60,"min","s");let n=Math.round(t/60);return n<1440?ue(n,60,"h","min"):ue(Math.round(t/3600),24,"d","h")}function ue(t,e,n,o){
let s=t%e;return`${en.format(Math.floor(t/e))} ${n}${s?` ${s} ${o}`:""}`}function C(t){return g(t)?t<1.5?"1 s":B(Math.round(
t)):"never"}function X(t,e){let n=e?"GPU":"rank";if(!g(t))return"\u2013";if(t<1)return`0 ${n}-s`;if(t<59.5)return`${T(t,
2)} ${n}-s`;if(t<3600)return`${T(t/60,2)} ${n}-min`;let o=t/3600;return`${o<9.95?o.toFixed(1):T(Math.round(o),2)} ${n}-h`}
function z(t,e=2){if(!g(t))return"\u2013";let n=Number((100*t).toPrecision(12));return`${T(Math.abs(n)>=100?Math.round(n):
n,e)} %`}function H(t){return g(t)?`${t>=100?T(Math.round(t)):t.toFixed(2)}\xD7`:"\u2013"}function W(t,e){if(!g(t))return"\
\u2013";let n=new Date(t*1e3),o=[n.getHours(),n.getMinutes(),n.getSeconds()].map(tn).join(":");return g(e)&&new Date(e*1e3).
toDateString()===n.toDateString()?o:`${[n.getFullYear(),n.getMonth()+1,n.getDate()].map(tn).join("-")} ${o}`}function tn(t){
return String(t).padStart(2,"0")}function Z(t,e,n=`${e}s`){return`${T(t)} ${t===1?e:n}`}function P(t){return t?t[0].toUpperCase()+
t.slice(1):""}function L(t){return $s[t]||String(t??"\u2013").replaceAll("_"," ")}var $s={slow_gpu:"slow GPU or host",slow_host:"\
slow host or data loading",late_arrival:"late arrival",link:"link",sequence_imbalance:"sequence-length imbalance",uneven_work:"\
ranks take turns",uniform_slowdown:"uniform slowdown",unknown:"unknown cause",host:"host clock",events:"CUDA events",cupti:"\
kernel times (CUPTI)",gpu_dropped:"kernels that the driver had no room for",gpu_invalid:"kernels without times",gpu_lost:"\
kernels in no known section",gpu_late:"kernels that came too late",collective:"host clock, without waiting in collective\
s",mixed:"host clock and GPU times",synchronised:"times that contain waiting"};function ut(t){let e=document.querySelector("[data-part=announcer]");e&&(e.textContent=A(t))}var Es=28;function j(t,e,n=""){let o=g(t)&&e>0?Math.min(1,Math.max(0,t/e)):0,s=i("span",{class:"bar-fill",style:{width:`${(100*
o).toFixed(2)}%`}});return i("span",{class:`bar ${n}`,"aria-hidden":"true"},s)}function b(t,e=""){return i("bdi",{class:`\
name ${e}`,title:t??!1},t??"")}function F(t){return String(t??"").split(/(\S*-\S*)/).map(n=>n.includes("-")&&n.length<=Es?
i("span",{class:"unbroken"},n):n)}function D(t,e,n={}){return i("button",{type:"button",class:"rank-link",title:`Show ra\
nk ${t}`,onclick:()=>e.select({rank:t}),...n},`rank ${T(t)}`)}var Rs=["127.0.0.1:9464","localhost:9464"],nn=/^otel-straggler (verdict|hang ask|doctor)\b/;
function As(t,e,n=null){return n&&nn.test(t)?`${t} --collector ${n}`:!/^https?:$/.test(e?.protocol)||Rs.includes(e.host)?
t:nn.test(t)?`${t} --collector ${e.origin}`:t}function tt(t,e=null){let n=As(t,globalThis.location,e);return i("div",{class:"\
command",key:n},i("code",{dir:"ltr",tabindex:"0"},n),i("button",{type:"button",class:"copy","aria-label":`Copy: ${n}`,onclick:Ns},
"Copy"))}async function Ns(t){let e=t.currentTarget,n=e.previousElementSibling;try{await navigator.clipboard.writeText(n.
textContent),e.textContent="Copied",ut("Copied"),window.setTimeout(()=>e.textContent="Copy",1500)}catch{vs(n),e.textContent=
"Press Ctrl+C",ut("The command is selected: press Control and C to copy it")}}function vs(t){let e=document.createRange();
e.selectNodeContents(t);let n=window.getSelection();n.removeAllRanges(),n.addRange(e)}function U(t){return i("p",{class:"\
nothing"},t)}function Dt(t,e){let n=!1,o=null,s=()=>{E(t,o?e(o,n,()=>{n=!n,s()}):null)};return{update(r){o=r,s()}}}function gt(t,e,n,o){
return t<=e?null:i("button",{type:"button",class:"quiet",key:"more","aria-expanded":String(n),onclick:o},n?"Show fewer":
`Show all ${T(t)}`)}var Cs=["critical","warning","info"],Hs={critical:"\u2715",warning:"!",info:"i"},Ws=["alertname","severity","run_id","jo\
b_name","cluster","rank","node"],Ls=4,on=3;function sn(t,e){let n=new Map,o=null,s=()=>E(t,o?Is(o,e,n,r):null),r=(a,l)=>{
n.set(a,l),s()};return{update(a){o=a,s()}}}function Is(t,e,n=new Map,o=()=>{}){let s=Ds(t.alerts||[]),{is_live:r,received_at_s:a}=t.
run,l=r?t.now_s:a??t.now_s,u=t.run.mode==="observe"?i("p",{class:"nothing"},"The collector is in observe mode: firing al\
erts are listed here, and no notifications are sent."):null;return s.length?[r?u:i("p",{class:"nothing"},"No rank is rep\
orting: these fired when the run was last seen."),s.length>Ls?i("ul",{class:"cards",key:"names"},Ps(s).map(([c,f],d)=>Fs(
c,f,n.get(c)??(d?"none":"few"),l,o,e))):i("ul",{class:"cards",key:"alerts"},s.map(c=>un(c,l,e)))]:[U("No alerts are firi\
ng."),r?u:null]}function Ps(t){let e=new Map;for(let n of t)e.set(n.name,[...e.get(n.name)??[],n]);return[...e]}function Fs(t,e,n,o,s,r){
let[a]=e,l=n!=="none",u=n==="all"?e:e.slice(0,on),c=()=>s(t,n==="all"?"few":"all");return i("li",{key:`name ${t}`,"data-\
tone":rn(a),"data-alert":t},an(a),i("div",{},i("p",{class:"card-title"},i("button",{type:"button",class:"text-link","ari\
a-expanded":String(l),onclick:()=>s(t,l?"none":"few")},b(t)),i("span",{class:"label"},T(e.length),i("span",{class:"visua\
lly-hidden"}," of them")),i("small",{},` ${Kt(a)}, ${e.length>1?"newest ":""}for ${ln(a,o)}`)),l?i("ul",{class:"cards"},
u.map(f=>un(f,o,r,e.length>1?"of some":"alone"))):i("p",{class:"one-line muted",dir:"auto"},F(P(cn(a)))),l?gt(e.length,on,
n==="all",c):null))}function Kt(t){return t.labels.severity||"info"}function rn(t){return Kt(t)==="critical"?"bad":"watc\
h"}function an(t){let e=Kt(t);return i("span",{class:"tone-mark",title:e,"aria-hidden":"true"},Hs[e]||"!")}function ln(t,e){
return B(Math.max(0,Math.round(e-t.since_ns/1e9)))}function cn({annotations:t}){return t.summary||t.description||""}function Ds(t){
let e=o=>(Cs.indexOf(o.labels.severity)+4)%4,n=({labels:o})=>"rank"in o?1:0;return[...t].sort((o,s)=>e(o)-e(s)||n(o)-n(s)||
s.since_ns-o.since_ns)}function un(t,e,n,o=""){let{labels:s,annotations:r}=t,a=/^\d{1,9}$/.test(s.rank??"")?Number(s.rank):
null;return i("li",{key:JSON.stringify(s),"data-tone":rn(t)},o?null:an(t),i("div",{},o==="alone"?null:i("p",{class:"card\
-title"},o?null:b(t.name),i("small",{},` ${Kt(t)}, for ${ln(t,e)}`)),i("p",{dir:"auto"},F(P(cn(t)))),r.summary&&r.description&&
r.description!==r.summary?i("p",{class:"muted",dir:"auto"},r.description):null,i("p",{class:"card-foot"},a===null?null:D(
a,n),s.node?b(s.node):null,Ks(s).map(([l,u])=>i("span",{class:"label",key:l},b(`${l}=${u}`))),Bs(r.runbook_url))))}function Ks(t){
return Object.entries(t).filter(([e])=>!Ws.includes(e)).slice(0,6)}function Bs(t){return/^https?:\/\//i.test(t??"")?i("a",
{href:t,rel:"noreferrer noopener",target:"_blank"},"Runbook"):null}var fe=[{state:"lost",tone:"lost",mark:"\u2715",meaning:"no heartbeat: crashed, stopped or cut off"},{state:"stuck",tone:"\
stuck",mark:"\u25A0",meaning:"alive, with open work, but no progress"},{state:"late",tone:"late",mark:"\u25B2",meaning:"\
no progress for half of its timeout"},{state:"failed",tone:"lost",mark:"!",meaning:"has reported that it failed"},{state:"\
missing",tone:"unknown",mark:"?",meaning:"expected, but never seen"},{state:"starting",tone:"starting",mark:"\u25C7",meaning:"\
has not begun a step yet"},{state:"ok",tone:"ok",mark:"\u25CF",meaning:"making progress"},{state:"finished",tone:"finish\
ed",mark:"\u2713",meaning:"has reported that it ended well"},{state:"ended",tone:"finished",mark:"\u2013",meaning:"was e\
nded, or ended with its run"}],dn={state:"unknown",tone:"unknown",mark:"?",meaning:"no data"},js=3;function mn(t){return[
"finished","failed","ended"].includes(t)}function ft(t){return fe.find(({state:e})=>e===t)||dn}function hn(t){let e=new Array(
t.states.length).fill(0),n=0;for(let s of t.state)s>=0&&s<e.length?e[s]+=1:n+=1;let o=t.states.map((s,r)=>({...ft(s),state:s,
count:e[r]}));return n&&o.push({...dn,count:n}),o.filter(({count:s})=>s>0).sort((s,r)=>de(s.state)-de(r.state))}function de(t){
let e=fe.findIndex(({state:n})=>n===t);return e===-1?fe.length:e}function me(t){return new Set((t||[]).flatMap(e=>e.victims>
0&&e.culprits||[]))}function pn(t,e,n=new Set){let o=t.states.map(de),s=a=>n.has(t.rank[a])?0:1,r=[];return t.state.forEach(
(a,l)=>{o[a]<js&&r.push(l)}),r.sort((a,l)=>s(a)-s(l)||o[t.state[a]]-o[t.state[l]]||fn(t,l)-fn(t,a)),{places:r.slice(0,e),
left_out:Math.max(0,r.length-e)}}function fn(t,e){return Math.max(t.heartbeat_age_s?.[e]??0,t.progress_age_s?.[e]??0)}function he(t){
let e=Float64Array.from((t||[]).filter(g)).sort();return e.length?{oldest:e[e.length-1],median:e[Math.floor((e.length-1)/
2)]}:null}function gn(t,e,n){let o=Us,s=1;for(;o>1&&(s=Math.ceil(t/Math.max(1,Math.floor(e/o))),!(s*o<=n));o-=o>8?1:.5);
s=Math.ceil(t/Math.max(1,Math.floor(e/o)));let r=Math.ceil(t/s);return{width:Math.min(Gs,e/r),height:o,columns:r,rows:s,
total:s*o}}var Us=24,Gs=110;var Bt=40,wn=.1;function _n(t){let{answer:e}=t;return e.kind==="hang"?zs(t):qs(e)||Js(t)}function qs(t){let e=t.peers;if(!e||
!g(e.own_s)||!g(e.peers_s))return null;let n=Math.max(e.own_s,e.peers_s),o=g(e.n_peers)&&e.n_peers>0?`${T(e.n_peers)} `:
"";return Gt([i("strong",{},H(e.slowdown)),` as long as ${jt(t,o)}`,t.section?[" in ",b(t.section)]:null],Ut(Tn(t),e.own_s,
n,"own",N(e.own_s)),Ut(jt(t,o),e.peers_s,n,"others",N(e.peers_s)))}function zs(t){let{answer:e,ranks:n}=t,o=Ys(t).map(s=>n.
rank.indexOf(s)).filter(s=>s!==-1);return o.length?e.cause==="lost"?Vs(t,o):Xs(t,o):null}function Ys({answer:t,hangs:e}){
return g(t.rank)?[t.rank]:(e??[]).flatMap(({culprits:n})=>n??[])}function Vs(t,e){let n=t.ranks.heartbeat_age_s,o=new Set(
e),s=Math.min(...e.map(l=>n[l]).filter(g)),r=Zs(n.filter((l,u)=>!o.has(u))),a=Math.max(...[s,r].filter(g));return Gt([i(
"strong",{},g(s)?C(s):"Never seen"),g(s)?" since the last heartbeat":null],Ut(xn(t,e),s,a,"own",C(s)),g(r)&&Ut("others, \
median",r,a,"others",C(r)))}function Xs(t,e){let{ranks:n}=t,o=new Set(e),s=n.rank.map((r,a)=>a).filter(r=>!o.has(r));return s.
length?Gt(null,bn(xn(t,e),yn(e.map(r=>kn(n,r)))),bn("most of the others",yn(s.map(r=>kn(n,r))))):null}function kn(t,e){let n=t.
open_sections[t.open_section[e]],o=t.step[e],s=[g(o)?`step ${T(o)}`:"no step yet"];return mn(t.states[t.state[e]])?s.push(
"ended"):n&&s.push(`in ${n}`),s.join(", ")}function yn(t){let e=new Map;for(let n of t)e.set(n,(e.get(n)??0)+1);return[...e].
reduce((n,o)=>o[1]>n[1]?o:n)[0]}function bn(t,e){return i("div",{class:"peer-row reached"},i("span",{class:"peer-name"},
b(P(t))),i("span",{},b(e)))}function xn({answer:t,ranks:e},n){return g(t.rank)?Tn(t):n.length===1?`rank ${e.rank[n[0]]}`:
Z(n.length,"rank")}function jt({scope:t,cause:e},n){return t!=="run"&&t!=="role"?`its ${n}peers`:(e??"").endsWith("_imba\
lance")?"if all did the same work":"before"}function Tn(t){return t.scope==="run"?"the run":g(t.rank)?`rank ${t.rank}`:t.
node?`host ${t.node}`:"this"}function Gt(t,...e){return i("figure",{class:"peers","data-field":"peers"},t&&i("figcaption",
{},t),e)}function Ut(t,e,n,o,s){return i("div",{class:"peer-row"},i("span",{class:"peer-name"},b(P(t))),j(e,n,o),i("span",
{class:"number"},s))}function Zs(t){let e=Float64Array.from(t.filter(g)).sort();return e.length?e[Math.floor((e.length-1)/
2)]:NaN}function Js({ranks:t,slowdowns:e}){let n=e?.overall??[],o=Qs(n);if(!o||o.count<2)return null;let s=t.rank[o.slowest_place],
r=Math.max(...o.bins),a=`${Z(o.count,"rank")} from ${H(o.low)} to ${H(o.high)}`;return Gt([i("strong",{},H(o.high)),` as\
 long as its peers: the slowest of all, rank ${T(s)}`],i("svg",{class:"spread",viewBox:`0 0 ${Bt} 20`,preserveAspectRatio:"\
none",role:"img","aria-label":a},o.bins.map((l,u)=>l>0&&i("rect",{key:u,x:u+.08,width:.84,y:(19.5-19*Math.sqrt(l/r)).toFixed(
2),height:(.5+19*Math.sqrt(l/r)).toFixed(2)}))),i("div",{class:"spread-axis","aria-hidden":"true"},i("span",{},H(o.from)),
i("span",{},"own time / that of the peers, all ranks"),i("span",{},H(o.to))))}function Qs(t){let[e,n,o,s]=[1/0,-1/0,0,-1];
if(t.forEach((u,c)=>{g(u)&&(o+=1,e=Math.min(e,u),u>n&&([n,s]=[u,c]))}),!o)return null;let r=Math.min(e,1-wn),a=Math.max(
n,1+wn),l=new Array(Bt).fill(0);for(let u of t)g(u)&&(l[Math.min(Bt-1,Math.floor((u-r)/(a-r)*Bt))]+=1);return{low:e,high:n,
count:o,from:r,to:a,bins:l,slowest_place:s}}var On={good:"\u2713",watch:"!",bad:"\u2715",unknown:"?",ended:"\u25A0"},qt={good:"Healthy",watch:"Keep an eye on it",bad:"\
Act",unknown:"Not known yet",ended:"Ended"};function Mn(t,e){return{update(n){t.hidden=!n,n&&(t.dataset.tone=n.answer.tone,
t.dataset.kind=n.answer.kind,E(t,tr(n,e)))}}}function tr(t,e){let{answer:n}=t;return[i("div",{class:"answer-mark","aria-\
hidden":"true"},On[n.tone]||"?"),i("div",{class:"answer-says"},i("p",{class:"eyebrow"},qt[n.tone]||qt.unknown),i("h1",{"\
data-field":"headline",dir:"auto"},F(n.headline)),i("p",{class:"sentence","data-field":"sentence",dir:"auto"},F(P(n.sentence))),
nr(t.run),or(t),sr(t),er(t),t.checkpoint?i("p",{class:"last-save","data-field":"checkpoint"},t.checkpoint.text):null),i(
"div",{class:"answer-shows"},_n(t),cr(n,t.page_url),g(n.rank)?i("button",{type:"button",class:"quiet",onclick:()=>e.select(
{rank:n.rank})},`All about rank ${n.rank}`):null)]}function er({notes:t,answer:e}){return(t||[]).filter(o=>!e.sentence.includes(
o.text)).map(o=>i("p",{class:"sentence",key:o.kind,"data-field":"note",dir:"auto"},F(o.text)))}function At(t){return qt[t]||
qt.unknown}function Nt(t){return On[t]||"?"}function nr(t){let e=t?.goodput?.sentence;return e?i("p",{class:"sentence","\
data-field":"goodput",dir:"auto"},F(e)):null}function or({run:t,now_s:e}){let n=t?.launches,o=n?.attempts.at(-1);if(!o||
typeof n.text!="string")return null;let s=g(o.started_at_s)?` ${B(Math.max(0,Math.round(e-o.started_at_s)))} ago`:"",r=[
`Attempt ${o.attempt}; restarted${s}`,n.text].filter(Boolean).join(" ");return i("p",{class:"sentence","data-field":"lau\
nches",dir:"auto"},F(r))}function sr(t){let{answer:e}=t,n=[["Why","cause",e.cause_text||(e.cause?L(e.cause):null)],["Whe\
re","section",e.section],["Since","since",ar(t)],[$n(t)?"Cost":"Costs","cost",lr(t)],["Evidence","evidence",ir(e)]].filter(
([,,o])=>o);return n.length?i("dl",{class:"facts"},n.map(rr)):null}function rr([t,e,n]){return i("div",{key:e},i("dt",{},
t),i("dd",{"data-field":e},b(n)))}function ar(t){let{since_step:e,since_s:n}=t.answer,o=[];if(g(e)&&o.push(`step ${T(e)}`),
g(n)){let s=B(Math.max(0,Math.round(t.now_s-n)));o.push(`${s} ago (${W(n,t.now_s)})`)}return o.join(", ")}function $n(t){
return t.answer.kind==="ended"}function lr(t){let{answer:{cost:e},run:n}=t;if(!e)return"";let o=e.gpu_seconds_lost_per_hour,
s=[];return g(o)&&o>=1&&s.push(`${X(o,n.on_gpu)} per hour`),g(e.gpu_seconds_lost)&&e.gpu_seconds_lost>=1&&s.push(`${X(e.
gpu_seconds_lost,n.on_gpu)} ${$n(t)?"in all":"so far"}`),s.join(", ")}function ir(t){if(!t.evidence)return"";let e=[L(t.
evidence)];return g(t.confidence)&&e.push(`${z(t.confidence)} sure`),t.is_localised===!1&&e.push("cannot tell culprit fr\
om victims"),e.join(", ")}function cr(t,e){let n=t.advice||[],o=t.commands||[];return!n.length&&!o.length?null:i("div",{
class:"advice"},i("h2",{},"What to do"),i("ul",{"data-field":"advice"},n.map(s=>i("li",{dir:"auto"},P(s)))),o.filter(s=>!Sn(
s)).map(s=>tt(s,e)),ur(o.filter(Sn),e))}function Sn(t){return/ verdict dismiss /.test(t)}function ur(t,e){return t.length?
i("details",{class:"dismissal",key:"dismissal"},i("summary",{},"Known, or not a problem?"),i("p",{class:"nothing"},"This\
 ends its notifications. Write your reason instead of WHY."),t.map(n=>tt(n,e))):null}var fr=1e4;function Rn(){let t=null,e=null,n=!1,o=-1/0,s=null,r=a=>{o=Date.now(),ut(a)};return{update(a,l,u){let c=l.state===
"reconnecting",f=dr(a,c,u);if(document.title=A(mr(a,c)),document.documentElement.dataset.tone=c?"unknown":a?.answer.tone??
"unknown",f===t)return;let d=t===null,m=e!==En(a)&&a!==null,h=n&&!c?`The collector responds again. ${f}`:f;if(t=f,n=c,a&&
(e=En(a)),d)return;window.clearTimeout(s);let p=m?0:o+fr-Date.now();s=window.setTimeout(()=>r(h),Math.max(0,p))}}}function dr(t,e,n){
return e?"The collector does not respond. The data on this page is getting stale.":n||(t?`${At(t.answer.tone)}: ${t.answer.
headline}`:"")}function En(t){return t?JSON.stringify([t.run.run_id,t.run.group]):null}function mr(t,e=!1){if(!t)return"\
otel-straggler";let{answer:n,run:o}=t;return e?`${Nt("unknown")} The collector does not respond \xB7 ${o.job||o.run_id}`:
`${Nt(n.tone)} ${n.headline} \xB7 ${o.job||o.run_id}`}var hr={ok:"finished",failed:"failed",cancelled:"was cancelled",preempted:"was preempted"},pr={live:"\u25CF",ended:"\u25A0",
saved:"\u25A3",reconnecting:"\u25CB",connecting:"\u25CB",locked:"\u25CB"};function An(t,e,n){let o=null,s=()=>{if(!o)return;
let{picture:r,connection:a,problem:l,historyProblem:u,problems:c}=o,f=gr(r,a,l,Date.now(),u,c);t.dataset.state=o.connection.
state,t.dataset.old=String(f.isOld),E(t,i("span",{class:"dot","aria-hidden":"true"},pr[o.connection.state]),i("span",{class:"\
connection-state"},f.state),f.age?i("span",{class:"connection-age number"},f.age):null),e.hidden=!f.notice,e.dataset.kind=
f.kind||"",E(e,f.notice?xr(f,n):null);let d=o.connection.state==="reconnecting"||f.kind==="awaited";document.body.classList.
toggle("is-stale",d)};return window.setInterval(s,1e3),{update(r,a,l,u,c=null,f=[]){o={picture:r,connection:l,problem:u,
historyProblem:c,problems:f},s()}}}function gr(t,e,n,o,s=null,r=[]){let a=o/1e3+e.clock_s,l=t?.run.received_at_s,u=g(l)?
Math.max(0,a-l):null,c={state:L(e.state),age:"",isOld:!1,notice:null};if(e.state==="saved")return kr(t,c);if(e.state==="\
reconnecting")return yr(t,e,o,u,c);if(n)return{...c,notice:n,kind:"problem"};if(s){let d=`Past runs cannot be shown: ${s}`;
Object.assign(c,{notice:d,kind:"history-problem"})}if(r.length){let d=[c.notice,...r.map(wr)].filter(Boolean).join(" ");
Object.assign(c,{notice:d,kind:"collector-problem"})}if(!t)return c;if(e.state==="ended")return br(t,c);let f=u!==null&&
u>30;return{...c,age:`data ${C(u)} ago`,isOld:f}}function wr(t){return`${t[0].toUpperCase()}${t.slice(1)}.`}function kr(t,e){
if(!t)return e;let n=W(t.now_s,null);return{...e,state:"saved",age:n,notice:`A report of ${n}. It no longer changes.`,kind:"\
saved"}}function yr(t,e,n,o,s){let r=Math.max(0,Math.ceil(((e.retry_ms??n)-n)/1e3)),a=C((n-e.since_ms)/1e3),l=t&&o!==null?
` The data is ${C(o)} old.`:"",u=r>0?`Trying again in ${r} s.`:"Trying again now.";return{...s,age:o===null?"":`data ${C(
o)} old`,isOld:!0,notice:e.told?`The collector cannot show this: ${e.told}${l} ${u}`:`The collector has not responded fo\
r ${a}.${l} ${u}`,kind:"away",canRetry:!0}}function br(t,e){let{run:n}=t;if(g(n.awaited_since_s))return _r(t,e);let o=W(
n.received_at_s,t.now_s);if(!n.is_live){let r=`From the collector's history: no rank is reporting. Last seen ${o}.`;return{
...e,state:"history",age:o,notice:r,kind:"history"}}let s=W(n.finished_at_s,t.now_s);return{...e,state:"ended",age:s,notice:`\
This run ${hr[n.outcome]??"ended"} at ${s}.`,kind:"ended"}}function _r({run:t,now_s:e},n){let o=W(t.seen_at_s,e),s=`This\
 is the run as of ${o}. The collector was restarted at ${W(t.awaited_since_s,e)}, and has received nothing from this run\
 since.`;return{...n,state:"last view",age:o,isOld:!0,notice:s,kind:"awaited"}}function xr(t,e){return[i("span",{dir:"au\
to"},t.notice),t.canRetry?i("button",{type:"button",class:"quiet",onclick:e.retry},"Try now"):null,t.kind==="problem"?i(
"button",{type:"button",class:"quiet",onclick:()=>e.select({run:null,group:null,rank:null,section:null})},"Show the firs\
t run"):null]}var Tr=.03,Sr=30,Or=.1,Mr=.048;function Nn(t){return{update(e){t.hidden=!e,e&&E(t,$r(e).map(Er))}}}function $r(t){let{run:e}=t,
n=t.answer.kind==="ended";return[Rr(e),Ar(e,n),vr(t,n),Cr(t,n),Hr(t),Pr(e)]}function Er({title:t,large:e,of:n,unit:o,small:s,
tone:r}){let a=n?`of ${n}`:o;return i("div",{class:"figure",key:t,"data-tone":r||!1},i("dt",{},t),i("dd",{class:"figure-\
large"},e,a&&i("span",{class:"figure-of"},` ${a}`)),i("dd",{class:"figure-small"},s||" "))}function Rr(t){let e=t.slowest_step_s,
n=t.world_size===1?"":" of the slowest rank",o=g(e)?`of it ${N(e)} own work${n}`:"";return{title:"Step time",large:N(t.step_s),
small:o}}function Ar(t,e){let n=g(t.waste)&&t.waste>=1,o=e?"took":"takes",s=g(t.slowdown)?`${o} ${H(t.slowdown)} as long\
 as it could`:"";return{title:"Time lost",large:z(t.waste),small:n?"no progress":s,tone:g(t.waste)?Nr(t.waste):null}}function Nr(t){
return t>=Or?"bad":t>=Mr?"watch":"good"}function vr({run:t,heat:e},n){let o=Math.round(Tr*(e?.cells?.length??0))<=1,[s,r]=[
[t.m_w,`the worst worker${o?"":"s"}`],[t.m_s,"the last stage"]].reduce((c,f)=>(f[0]??0)>(c[0]??0)?f:c),a=g(s)&&s>=.5?`${z(
Math.min(1,s))} of it by ${r}`:"",[l,u]=X(t.gpu_seconds_lost,t.on_gpu).split(" ");return{title:n?"Lost in all":"Lost so \
far",large:l,unit:u,small:a}}function Cr({run:t,ranks:e},n){let o=n?-1:e.states.indexOf("lost"),s=o===-1?0:e.state.filter(
u=>u===o).length,r=s?Math.min(t.ranks_reporting,e.rank.length-s):t.ranks_reporting,a=g(t.world_size)?Math.max(0,t.world_size-
r-s):0,l=[s&&`${T(s)} lost`,a&&`${T(a)} missing`];return{title:n?"Ranks that reported":"Ranks reporting",large:T(r),of:g(
t.world_size)?T(t.world_size):null,small:l.filter(Boolean).join(", ")||"all of them",tone:s||a?"bad":null}}function Hr(t){
let{run:e}=t,n=g(e.finished_at_s)||t.answer.kind==="ended",o=n?e.finished_at_s??e.received_at_s??t.now_s:t.now_s,s=t.answer.
kind==="hang"?t.answer.since_s:e.began_at_s,r=[n&&e.state==="training"?"last seen training":Lr(e)];return g(s)&&!g(e.awaited_since_s)&&
(r[0]+=`${Wr(t,n,s)} ${B(Math.max(0,o-s))}`),g(e.attempt)&&e.attempt>0&&r.push(`attempt ${e.attempt}`),{title:"Step",large:T(
e.step),small:r.join(", ")}}function Wr({run:t,started_at_s:e},n,o){return n?" after":t.state!=="unknown"&&g(e)&&o===t.began_at_s&&
o-e<Sr?", monitored for":" for"}function Lr(t){return g(t.awaited_since_s)?"before the collector was restarted":t.state===
"unknown"?"without heartbeats":L(t.state)}function Ir({gpu_times:t}){return t&&t.text?`; ${t.text}`:""}function Pr(t){let e=t.
resolvable_slowdown,n=(t.groups??[]).length>1?" of this group":"";return{title:"Detection limit",large:g(e)?z(e-1):z(null),
small:`slowdown of one rank${n}${t.time_basis?`, by ${L(t.time_basis)}`:""}${Ir(t)}`}}function vn(t){return{update(e,n,o){let s=o!==null&&o.runs.length===0&&!n.run;t.hidden=!s,s&&E(t,Fr(window.location.hostname||
"127.0.0.1",window.location.protocol))}}}function Fr(t,e="http:"){let n=t.includes(":")&&!t.startsWith("[")?`[${t}]`:t,o=`${e}\
//${n}:4318`;return[i("p",{class:"eyebrow"},"No runs yet"),i("h1",{},"The collector is running, but no training run has \
reported"),i("p",{},"Add four lines around the training loop and start it. The page updates automatically."),i("pre",{tabindex:"\
0","aria-label":"Four lines of Python around a loop"},i("code",{},Dr(o))),i("p",{},"Or change nothing, and start it with\
 this instead of torchrun:"),tt(`OTEL_STRAGGLER_ENDPOINT=${o} otel-straggler run --nproc-per-node 4 train.py`),i("p",{},
"Ranks send to ",i("code",{},o)," unless the collector was started with another address. It listens on this machine only\
 unless configured otherwise (",i("code",{},"--otlp-http 0.0.0.0:4318"),", with grants or ",i("code",{},"--insecure"),")\
."),i("h2",{},"Nothing arrives?"),i("p",{},"Run this in the environment of the job:"),tt("otel-straggler doctor"),i("h2",
{},"Just trying it out?"),i("p",{},"This sends the telemetry of eight ranks, one of them slow, in real time:"),tt(`otel-\
straggler simulate --steps 2000 --speed 1 --send ${o}`)]}function Dr(t){return["import otel_straggler as ots","",`ots.co\
nfigure(endpoint="${t}")  # after init_process_group, if there is one`,"ots.watch(model, optimizer, dataloader)","for ba\
tch in dataloader:","    ...  # as it is: forward, backward, optimizer.step()","ots.shutdown()"].join(`
`)}var Cn=8;function Hn(t,e){return{update(n){E(t,n?Kr(n.ledger||[],e,pe(n)):null)}}}function pe({ranks:t,slowdowns:e}){return((e?.
overall??[]).filter(g).length||t.rank.length)===1}function Kr(t,e,n=!1){let o=t.filter(a=>g(a.exposed_s));if(!o.length)return U(
"No step has been analyzed yet.");let s=o.reduce((a,l)=>a+Math.max(0,l.exposed_s),0),r=Math.max(...o.map(a=>Math.max(a.exposed_s,
a.typical_s??0)));return[Br(o,s),i("table",{class:"rows"},i("caption",{class:"visually-hidden"},"Seconds of the step by \
section"),i("thead",{},i("tr",{},i("th",{scope:"col"},"Section"),i("th",{scope:"col",class:"wide"},"Adds to the step"),i(
"th",{scope:"col",class:"number"},"Exposed"),n?null:i("th",{scope:"col",class:"number spare"},"Typical rank"),n?null:i("\
th",{scope:"col"},"Last one"))),i("tbody",{},o.map((a,l)=>jr(a,l,s,r,n,e))))]}function Br(t,e){return i("div",{class:"st\
ack",role:"img","aria-label":`A step of ${N(e)}; the table below lists its parts`},t.map((n,o)=>i("span",{key:n.section,
class:`shade shade-${o%Cn}`,title:`${n.section}: ${N(n.exposed_s)}`,style:{"flex-grow":e>0?Math.max(0,n.exposed_s/e).toFixed(
5):1}},n.exposed_s/e>.12?b(n.section):null)))}function jr(t,e,n,o,s,r){return i("tr",{key:t.section},i("th",{scope:"row"},
i("span",{class:`swatch shade-${e%Cn}`,"aria-hidden":"true"}),i("button",{type:"button",class:"text-link",title:"Show th\
is section over time",onclick:()=>r.select({section:t.section})},b(t.section))),i("td",{class:"wide"},j(t.exposed_s,o,"n\
eutral")),i("td",{class:"number"},N(t.exposed_s),i("small",{},` ${z(n>0?t.exposed_s/n:null)}`)),s?null:i("td",{class:"nu\
mber spare"},N(t.typical_s)),s?null:i("td",{},g(t.leader_rank)?D(t.leader_rank,r):i("span",{class:"muted"},"varies")))}function nt(t){if(!Number.isFinite(t)||t<=0)return 0;let e=Math.round(128+64*Math.log2(t));return Math.min(255,Math.max(
1,e))}function Ln(t,e=t.length){let n=new Uint8Array(e);for(let o=0;o<e;o+=1)n[o]=nt(t[o]);return n}function zt(t){return t===
0?null:2**((t-128)/64)}function ge(t){if(t.encoding!=="uint8-log2")throw new Error(`timeline: encoding is ${t.encoding};\
 expected uint8-log2. Reload the page.`);let e=Ur(t.values),n=t.ranks.length*t.columns.length;if(e.length!==n)throw new Error(
`timeline: ${e.length} bytes for ${t.ranks.length} ranks in ${t.columns.length} columns; expected ${n}. Reload the page.`);
let{run_id:o,group:s,section:r,first:a,last:l,ranks:u,columns:c}=t;return{run_id:o,group:s,section:r??"",first:a,last:l,
ranks:u,columns:c,bytes:e}}function Ur(t){if(Uint8Array.fromBase64)return Uint8Array.fromBase64(t??"");let e=atob(t??""),
n=new Uint8Array(e.length);for(let o=0;o<e.length;o+=1)n[o]=e.charCodeAt(o);return n}function In(t,e,n=360){if(!t||Gr(t,
e)||qr(t,e))return e;if(e.columns.length===0)return t;let o=Yr(t.ranks,e.ranks),s=Xr(t,e,n),r=new Uint8Array(o.length*s.
length),a=new Map([t,e].map(h=>[h,Vr(o,h.ranks)]));s.forEach(({from:h,index:p},w)=>{Zr(h,p,r,w*o.length,a.get(h))});let l=s.
map(({from:h,index:p})=>h.columns[p]),{run_id:u,group:c,section:f}=e,[d,m]=[l[0].seq,l[l.length-1].seq];return{run_id:u,
group:c,section:f,first:d,last:m,ranks:o,columns:l,bytes:r}}function Gr(t,e){return["run_id","group","section"].some(n=>t[n]!==
e[n])}function qr(t,e){let[n,o]=[Wn(t),Wn(e)];if(!n||!o)return!1;if(o.seq<=n.seq&&o.at_s>n.at_s)return!0;let s=new Map(t.
columns.map(r=>[r.seq,r]));return e.columns.some(r=>{let a=s.get(r.seq);return a!==void 0&&!zr(a,r)})}function zr(t,e){return t.
seq===e.seq&&t.at_s===e.at_s&&t.first_step===e.first_step}function Wn(t){return t.columns[t.columns.length-1]}function Yr(t,e){
return t.length===e.length&&t.every((n,o)=>n===e[o])?t:[...new Set([...t,...e])].sort((n,o)=>n-o)}function Vr(t,e){if(t.
length===e.length)return null;let n=new Map(t.map((o,s)=>[o,s]));return Int32Array.from(e,o=>n.get(o))}function Xr(t,e,n){
let o=new Map;for(let r of[t,e])r.columns.forEach((a,l)=>o.set(a.seq,{from:r,index:l}));return[...o.keys()].sort((r,a)=>r-
a).slice(-n).map(r=>o.get(r))}function Zr(t,e,n,o,s){let r=t.ranks.length,a=t.bytes.subarray(e*r,(e+1)*r);if(s===null)n.
set(a,o);else for(let l=0;l<r;l+=1)n[o+s[l]]=a[l]}var vt=2,Jr=.7,Qr=.05,we={fast:["#c9dff2","#78b0de","#3179bb","#124384"],even:"#f6f6f4",slow:["#fdd8ae","#f79c47","#da5a\
0e","#852803"]};function Kn(t){let e=getComputedStyle(t),n=(o,s)=>e.getPropertyValue(o).trim()||s;return{fast:n("--heat-\
fast",we.fast.join(" ")).split(/\s+/),even:n("--heat-even",we.even),slow:n("--heat-slow",we.slow.join(" ")).split(/\s+/),
ink:n("--chart-ink","#1c2127"),quiet:n("--chart-quiet","#57606a"),line:n("--chart-line","#d0d7de"),surface:n("--chart-su\
rface","#ffffff"),empty:n("--chart-empty","#e9ecef"),hatch:n("--chart-hatch","#b6bec7"),flag:n("--chart-flag","#b3261e"),
accent:n("--chart-accent","#0b57d0"),font:e.fontFamily||"sans-serif"}}function ke(t){let e=nt(vt)-128,n=Math.min(1,Math.
abs(t-128)/e),o=n**Jr*-Math.expm1(-((n/Qr)**2));return t<128?-o:o}function ye(t,e){let n=[t.even,...e<0?t.fast:t.slow],o=Math.
abs(e)*(n.length-1),s=Math.min(n.length-2,Math.floor(o)),[r,a]=[Dn(n[s]),Dn(n[s+1])],l=o-s;return oa(r.map((u,c)=>u+l*(a[c]-
u)))}function Bn(t){let e=new Uint8ClampedArray(1024);for(let n=1;n<256;n+=1)e.set([...ye(t,ke(n)),255],n*4);return new Uint32Array(
e.buffer)}function jn(t){return Array.from({length:256},(e,n)=>{let o=ye(t,ke(n||128));return{fill:`rgb(${o.map(Math.round).
join(" ")})`,ink:ta(o)}})}function ta(t){return Pn(t,[0,0,0])>=Pn(t,[255,255,255])?"#000000":"#ffffff"}function Pn(t,e){
let[n,o]=[Fn(t),Fn(e)].sort((s,r)=>r-s);return(n+.05)/(o+.05)}function Fn(t){let[e,n,o]=t.map(Gn);return .2126*e+.7152*n+
.0722*o}function Un(t){return`linear-gradient(to right, ${Array.from({length:33},(n,o)=>{let s=nt(vt**(o/16-1));return`r\
gb(${ye(t,ke(s)).map(Math.round).join(" ")}) ${o/32*100}%`}).join(", ")})`}function ea(t){let e=/^#([0-9a-f]{6})$/i.exec(
t);if(!e)throw new Error(`colour ${t}: expected #rrggbb. Look at charts.css.`);return[16,8,0].map(n=>parseInt(e[1],16)>>
n&255)}function Gn(t){let e=t/255;return e<=.04045?e/12.92:((e+.055)/1.055)**2.4}function na(t){let e=Math.min(1,Math.max(
0,t));return 255*(e<=.0031308?e*12.92:1.055*e**(1/2.4)-.055)}function Dn(t){let[e,n,o]=ea(t).map(Gn),s=Math.cbrt(.4122214708*
e+.5363325363*n+.0514459929*o),r=Math.cbrt(.2119034982*e+.6806995451*n+.1073969566*o),a=Math.cbrt(.0883024619*e+.2817188376*
n+.6299787005*o);return[.2104542553*s+.793617785*r-.0040720468*a,1.9779984951*s-2.428592205*r+.4505937099*a,.0259040371*
s+.7827717662*r-.808675766*a]}function oa([t,e,n]){let o=(t+.3963377774*e+.2158037573*n)**3,s=(t-.1055613458*e-.0638541728*
n)**3,r=(t-.0894841775*e-1.291485548*n)**3;return[4.0767416621*o-3.3077115913*s+.2309699292*r,-1.2684380046*o+2.6097574011*
s-.3413193965*r,-.0041960863*o-.7034186147*s+1.707614701*r].map(na)}function ot(t,e){return e?`rank ${t} on ${e}`:`rank ${t}`}function qn(t){let e=zt(t);if(e===null)return"no data";let n=`${e.
toFixed(2)}x its peers`;return t===255?`${n} or more`:t===1?`${n} or less`:n}function zn(t){return t==null?"no data":`al\
one makes the step ${t.toFixed(2)}x as long`}function dt(t){return t==null?"no data":`${t.toFixed(2)}x its peers`}function Yn(t){
return t==null?"":t>=9.95?t.toFixed(0):t.toFixed(t>=3.95?1:2)}function Vn(t){let{first_step:e,last_step:n,at_s:o}=t;return e===
null?`until ${Xt(o)}`:e===n?`step ${e}`:`steps ${e}\u2013${n}`}function Vt({first_step:t,at_s:e}){return t===null?Xt(e):
wt(t)}function Xt(t){if(t==null)return"";let e=new Date(t*1e3);return[e.getHours(),e.getMinutes(),e.getSeconds()].map(n=>String(
n).padStart(2,"0")).join(":")}function wt(t){return String(t).replace(/\B(?=(\d{3})+$)/g,",")}function st(t){return`${wt(
t)} ${t===1?"rank":"ranks"}`}var rt="no other rank to compare with";function kt(t,e){let n=new Map;for(let o=0;o<e.length;o+=1){if(!(e[o]>0))continue;
let s=t.role?.[o];n.set(s,(n.get(s)??0)+1)}return o=>e[o]>0&&n.get(t.role?.[o])===1}function _(t,e,n={},...o){let s=document.createElement(t);e&&(s.className=e);for(let[r,a]of Object.entries(n))s.setAttribute(
r,a);return s.append(...o.map(r=>typeof r=="string"?A(r):r)),s}function J(){return parseFloat(getComputedStyle(document.
documentElement).fontSize)/16||1}function yt(t,e,n){let o=_("button","chart-button",{type:"button","aria-label":e,title:e},
t);return o.addEventListener("click",n),o}function Ct(t,e){let n=_("select","chart-select",{"aria-label":t});n.addEventListener(
"change",()=>e(n.value));let o="";return{element:n,setOptions:(r,a)=>{let l=JSON.stringify(r);l!==o&&(n.replaceChildren(
...r.map(({name:u,words:c})=>_("option","",{value:u},c))),o=l),n.value!==a&&(n.value=a)}}}function Xn(t){let e=_("span",
"chart-scale-bar"),n=[1/vt,1,vt].map((a,l)=>_("span","chart-scale-figure",{},`${l===2?"\u2265 ":l===0?"\u2264 ":""}${a}x`)),
o=_("span","chart-scale",{},e,_("span","chart-scale-figures",{},...n)),s=["no data",...t].map(a=>_("span","chart-key",{},
_("span",`chart-mark chart-mark-${a.replace(" ","-")}`),a));return{element:_("div","chart-legend",{role:"img","aria-labe\
l":"Colours: blue is faster than the peers, neutral is even, orange is slower"},_("span","chart-scale-word",{},"faster"),
o,_("span","chart-scale-word",{},"slower"),...s),setPalette:a=>{e.style.backgroundImage=Un(a)}}}function Zn(t){let e=_("\
strong",""),n=_("span",""),o=_("div","chart-tooltip",{role:"tooltip"},e,n);return o.hidden=!0,t.append(o),{element:o,show:([
r,...a],l,u)=>{e.textContent=A(r),n.textContent=A(a.filter(Boolean).join(" \xB7 ")),o.hidden=!1;let{offsetWidth:c,offsetHeight:f}=o,
d=l+14+c>t.clientWidth?l-14-c:l+14,m=u+14+f>t.clientHeight?u-10-f:u+14;o.style.transform=`translate(${Math.round(Math.max(
0,d))}px, ${Math.round(m)}px)`},hide:()=>{o.hidden=!0}}}function Jn(){return _("div","chart-spoken",{role:"status","aria\
-live":"polite"})}function Qn(t,e){let n=["rank","slowdown",e,"state","flagged"].map(u=>_("th","",{scope:"col"},u)),o=_(
"tbody",""),s=_("table","",{},_("caption","",{},t),_("thead","",{},_("tr","",{},...n)),o),r=_("div","chart-spoken",{},s),
a="";return{element:r,update:(u,c)=>{let f=u.map(m=>({...m,words:c(m.rank)})),d=JSON.stringify(f);d!==a&&o.replaceChildren(
...f.map(sa)),a=d}}}function sa({rank:t,node:e,slowdown:n,isLone:o,words:s,state:r,why:a}){let l=[o?rt:dt(n),s,r??"unkno\
wn",a??"no"];return _("tr","",{},_("th","",{scope:"row"},ot(t,e)),...l.map(u=>_("td","",{},u)))}function to(t){let e=new MutationObserver(
t);e.observe(document.documentElement,{attributes:!0,attributeFilter:["data-theme","class"]});let n=matchMedia("(prefers\
-color-scheme: dark)");return n.addEventListener("change",t),()=>{e.disconnect(),n.removeEventListener("change",t)}}var eo=10,ra=["Since","For","Why","Cost","Then"];function no(t){let e=t.hangs||[],n=e.flatMap(a=>a.earlier||[]).filter(a=>!a.
is_brief),o=e.map(a=>a.earlier_brief).filter(Boolean);if(!n.length&&!o.length)return null;let s=e.reduce((a,l)=>a+(l.earlier_brief?
0:l.earlier_left_out||0),0),r=Math.max(0,n.length-eo)+s;return[i("h3",{key:"title"},"Earlier hangs"),n.length?i("table",
{key:"hangs",class:"rows","data-field":"earlier-hangs"},i("caption",{class:"visually-hidden"},"Past hangs, newest first"),
i("thead",{},i("tr",{},ra.map(a=>i("th",{scope:"col",key:a,class:a==="Then"&&"spare"},a)))),i("tbody",{},la(n).map((a,l)=>ia(
a,l,t)))):null,r?i("p",{key:"more",class:"nothing"},`and ${Z(r,"shorter one")}`):null,o.map((a,l)=>aa(a,l,n.length+r>0,t.
run))]}function aa({sentence:t,gpu_seconds_lost:e,is_all:n},o,s,r){let a=g(e)&&e>=1?` ${n?"Cost":"Cost at least"}: ${X(e,
r.on_gpu)}.`:"";return i("p",{key:`brief-${o}`,"data-field":"brief-hangs"},s?"and ":"",b(t),a)}function la(t){let e=t.map(
(o,s)=>s).sort((o,s)=>t[s].duration_s-t[o].duration_s),n=new Set(e.slice(0,eo));return t.filter((o,s)=>n.has(s))}function ia(t,e,{
now_s:n,run:o}){let s=t.is_end_seen?"":"at least ",r=g(t.gpu_seconds_lost)?X(t.gpu_seconds_lost,o.on_gpu):"unknown";return i(
"tr",{key:e},i("th",{scope:"row",class:"brief"},W(t.since_s,n)),i("td",{class:"brief"},`${s}${B(t.duration_s)}`),i("td",
{},b(t.sentence)),i("td",{class:"brief"},r),i("td",{class:"spare"},b(t.then)))}var ca=8,ua=["Heartbeat","Step"],fa=132;function lo(t,e){let n=be(t,"state-counts"),o=ga(t),s=be(t,"grave-ranks"),r=be(t,
"earlier-hangs"),a=null,l=null,u={how:null,ranks:null},c=0;function f(){if(!a||!a.ranks.rank.length||o.clientWidth===0)return;
let p=document.activeElement===o,w=[o.clientWidth,window.devicePixelRatio,J(),a.theme,p?c:-1,...a.culprits].join();w===u.
how&&ka(u.ranks,a.ranks)||(u={how:w,ranks:a.ranks},l=wa(o,a,p?c:null))}function d(){a&&o.setAttribute("aria-valuetext",so(
a.ranks,c)),o.setAttribute("aria-valuenow",String(c))}function m(p){c=Math.max(0,Math.min(a.ranks.rank.length-1,p)),d(),
f()}o.addEventListener("keydown",p=>{if(!a||!l)return;let w={ArrowRight:1,ArrowLeft:-1,ArrowDown:l.columns,ArrowUp:-l.columns,
Home:-1/0,End:1/0};if(p.key in w)m(c+w[p.key]);else if(p.key==="Enter"||p.key===" ")e.select({rank:a.ranks.rank[c]});else
return;p.preventDefault()}),o.addEventListener("pointermove",p=>{let w=ro(p,l,a);o.title=w===null?"":so(a.ranks,w)}),o.addEventListener(
"click",p=>{let w=ro(p,l,a);w!==null&&(m(w),e.select({rank:a.ranks.rank[w]}))}),o.addEventListener("focus",()=>{d(),f()}),
o.addEventListener("blur",f);let h=new ResizeObserver(f);return h.observe(o),{update(p,w){if(a=p&&{ranks:p.ranks,theme:w.
theme,culprits:me(p.hangs)},o.hidden=!p||p.ranks.rank.length===0,E(r,p&&no(p)),!p)return E(n,null);let x=p.ranks.rank.indexOf(
w.rank);return x!==-1&&document.activeElement!==o&&(c=x),c=Math.min(c,Math.max(0,p.ranks.rank.length-1)),o.setAttribute(
"aria-valuemax",String(Math.max(0,p.ranks.rank.length-1))),E(n,da(p)),E(s,ha(p,e)),d(),f()},destroy:()=>h.disconnect()}}
function da(t){let{ranks:e}=t;if(!e.rank.length)return i("p",{class:"nothing"},"No rank has sent a heartbeat.");let n=g(
t.run.finished_at_s)||!t.run.is_live;return[i("ul",{class:"state-list"},hn(e).map(({state:o,tone:s,mark:r,meaning:a,count:l})=>i(
"li",{key:o,title:a,"data-rank-state":s},i("span",{class:"state-mark","aria-hidden":"true"},r)," ",i("strong",{class:"nu\
mber"},T(l)),` ${o}`)),n?null:oo("Heartbeat",he(e.heartbeat_age_s)),n?null:oo("Progress",he(e.progress_age_s))),(t.hangs||
[]).filter(o=>o.sentence).map(o=>ma(o))]}function oo(t,e){if(!e)return null;let n=`${t}: median ${C(e.median)} ago, olde\
st ${C(e.oldest)}`;return i("li",{key:t,class:"muted"},n)}function ma(t){return i("p",{class:"hang",key:t.group,"data-to\
ne":t.acknowledged?"watch":"bad",dir:"auto"},t.group?["Group ",b(t.group),": "]:null,P(t.sentence),t.acknowledged?" Ackn\
owledged.":null)}function ha(t,e){let{ranks:n}=t,o=me(t.hangs),{places:s,left_out:r}=pn(n,ca,o);return s.length?[i("tabl\
e",{class:"rows"},i("caption",{class:"visually-hidden"},"Ranks that are lost, stuck or late"),i("thead",{},i("tr",{},["R\
ank","State","Heartbeat","Progress","Step","Open section"].map(a=>i("th",{scope:"col",class:ua.includes(a)&&"spare"},a)))),
i("tbody",{},s.map(a=>pa(n,a,o,e)))),r?i("p",{class:"nothing"},`and ${T(r)} more, in the strip`):null]:null}function pa(t,e,n,o){
let s=t.states[t.state[e]],{mark:r,tone:a}=ft(s),l=t.open_section[e];return i("tr",{key:t.rank[e]},i("th",{scope:"row"},
D(t.rank[e],o)," ",i("small",{},b(xe(t,e))),n.has(t.rank[e])&&i("span",{class:"label strong"},"the others wait for it")),
i("td",{class:"brief","data-rank-state":a},i("span",{class:"state-mark","aria-hidden":"true"},r),` ${s}`),i("td",{class:"\
number spare"},_e(t.heartbeat_age_s[e])),i("td",{class:"number"},_e(t.progress_age_s[e])),i("td",{class:"number spare"},
T(t.step[e])),i("td",{},l==null?"none":b(t.open_sections[l])))}function _e(t){return g(t)?`${C(t)} ago`:"never"}function xe(t,e){
return t.nodes[t.node[e]]??""}function so(t,e){let n=t.open_section[e],o=[`rank ${t.rank[e]}${xe(t,e)?` on ${xe(t,e)}`:""}\
: ${t.states[t.state[e]]??"unknown"}`,`heartbeat ${_e(t.heartbeat_age_s[e])}`];return g(t.step[e])&&o.push(`step ${T(t.step[e])}`),
n!=null&&o.push(`in ${t.open_sections[n]}`),A(o.join(", "))}function be(t,e){let n=document.createElement("div");return n.
className=e,t.append(n),n}function ga(t){let e=document.createElement("canvas");return e.className="strip",e.tabIndex=0,
e.setAttribute("role","slider"),e.setAttribute("aria-label","All ranks; arrow keys move from rank to rank, Enter shows o\
ne"),e.setAttribute("aria-valuemin","0"),t.append(e),e}function ro(t,e,n){if(!e||!n)return null;let o=J(),s=Math.floor(t.
offsetX/o/e.width),r=Math.floor(t.offsetY/o/e.height)*e.columns+s;return s<e.columns&&r>=0&&r<n.ranks.rank.length?r:null}
function wa(t,{ranks:e,culprits:n},o){let s=gn(e.rank.length,t.clientWidth/J(),fa),r=ya(t,s.total),a=getComputedStyle(t),
l=m=>a.getPropertyValue(`--state-${m}`),u=e.states.map(m=>l(ft(m).tone)),c=l("unknown"),f=s.height>=4?1:0,d=m=>[m%s.columns*
s.width,Math.floor(m/s.columns)*s.height];return e.state.forEach((m,h)=>{r.fillStyle=u[m]||c;let[p,w]=d(h);r.fillRect(p,
w,s.width-f,s.height-f)}),s.width>=16&&ba(r,e,s,d,a),e.rank.forEach((m,h)=>{n.has(m)&&ao(r,d(h),s,a.getPropertyValue("--\
text"))}),o!==null&&ao(r,d(o),s,a.getPropertyValue("--focus")),s}function ka(t,e){return t===e?!0:!t||t.state.length!==e.
state.length?!1:t.states.join()===e.states.join()&&t.state.every((n,o)=>n===e.state[o]&&t.rank[o]===e.rank[o])}function ya(t,e){
let n=(window.devicePixelRatio||1)*J(),o=[Math.round(t.clientWidth*n/J()),Math.round(e*n)];t.style.height=`${e/16}rem`,t.
width!==o[0]&&(t.width=o[0]),t.height!==o[1]&&(t.height=o[1]);let s=t.getContext("2d");return s.setTransform(n,0,0,n,0,0),
s.clearRect(0,0,t.clientWidth,e),s}function ba(t,e,n,o,s){t.fillStyle=s.getPropertyValue("--on-state"),t.font=`${Math.min(
11,Math.floor(n.width*.48))}px system-ui, sans-serif`,t.textAlign="center",t.textBaseline="middle",e.state.forEach((r,a)=>{
let{state:l,mark:u}=ft(e.states[r]),c=String(e.rank[a]),f=l==="ok"?c:n.width>=40?`${u} ${c}`:u,[d,m]=o(a);t.fillText(f,d+
(n.width-1)/2,m+n.height/2)})}function ao(t,[e,n],o,s){t.strokeStyle=s,t.lineWidth=2,t.strokeRect(e+1,n+1,Math.max(o.width,
8)-3,Math.max(o.height,8)-3)}function io(t,e){let n=null,o=!1,s=()=>E(t,_a(n,o,r));async function r(a){a.preventDefault();let l=t.querySelector("inpu\
t");o||!l.value.trim()||(o=!0,s(),n=await e.login(l.value.trim()),o=!1,n===null&&(l.value=""),s(),n!==null&&l.focus())}return{
update(a){let l=t.hidden&&a.state==="locked";t.hidden=a.state!=="locked",!t.hidden&&(s(),l&&t.querySelector("input").focus())}}}
function _a(t,e,n){return[i("h1",{},"This collector asks for a token"),i("p",{},"Use one with the role read. It is kept \
until the browser is closed."),i("form",{onsubmit:n},i("label",{for:"login-token"},"Token"),i("input",{id:"login-token",
type:"password",autocomplete:"current-password",spellcheck:"false","aria-describedby":"login-problem"}),i("button",{type:"\
submit",disabled:e},"Log in")),i("p",{id:"login-problem",role:"alert"},t?`Not accepted: ${t}.`:"")]}function bt(t){let e=[t];for(;e[e.length-1].length>1;)e.push(xa(e[e.length-1]));return e}function xa(t){let e=new Uint8Array(
t.length+1>>1);for(let n=0,o=0;n<e.length;n+=1,o+=2){let s=t[o],r=o+1<t.length?t[o+1]:0;e[n]=r>s?r:s}return e}function Zt(t,e,n=0){
let o=new Uint8Array(e.length);for(let s=0;s<o.length;s+=1)o[s]=t[n+e[s]];return o}function I(t,e){let[n,o]=[t.cellWidth*
e,t.cellHeight*e],s=o>=1?0:Math.ceil(Math.log2(2/o));return{level:s,rows:2**s,columns:n>=1?1:Math.ceil(2/n)}}function Jt(t,e){
let n=Math.floor(t.firstRow/e.rows),o=Math.floor(t.firstColumn/e.columns);return{firstBin:n,bins:Math.max(0,Math.ceil(t.
endRow/e.rows)-n),firstGroup:o,groups:Math.max(0,Math.ceil(t.endColumn/e.columns)-o)}}function Qt(t,e,n,o,s,r){let{firstBin:a,
bins:l,firstGroup:u,groups:c}=s,f=new Uint8Array(l);for(let d=0;d<c;d+=1){let m=(u+d)*o.columns;Ta(f,n,m,m+o.columns,o.level,
a);for(let h=0,p=d;h<l;h+=1,p+=e)t[p]=r[f[h]]}}function Ta(t,e,n,o,s,r){t.fill(0);for(let a=n;a<Math.min(o,e.length);a+=
1){let l=e[a];if(!l)continue;let u=l[Math.min(s,l.length-1)];for(let c=0;c<t.length;c+=1){let f=u[r+c];f>t[c]&&(t[c]=f)}}}
function co(t,e,n,o,s){let r=o-o%n.rows,a=s-s%n.columns,l=Math.min(e,r+n.rows),u={row:o,column:s,byte:t[s]?.[0][o]??0,ranks:l-
r};for(let c=a;c<Math.min(t.length,a+n.columns);c+=1){let f=t[c]?.[0];for(let d=r;f&&d<l;d+=1)f[d]>u.byte&&Object.assign(
u,{row:d,column:c,byte:f[d]})}return u}function fo(t,e,n,o){let s=e.getContext("2d"),r={request:0,width:0,height:0,ratio:1,scale:1,isGone:!1},a=()=>{let d=J(),
m=(globalThis.devicePixelRatio||1)*d,[h,p]=[t.clientWidth/d,t.clientHeight/d];h===r.width&&p===r.height&&m===r.ratio||(Object.
assign(r,{width:h,height:p,ratio:m,scale:d}),e.width=Math.max(1,Math.round(h*m)),e.height=Math.max(1,Math.round(p*m)),o(
r),l())},l=()=>{r.request&&cancelAnimationFrame(r.request),r.request=0,!r.isGone&&r.width>0&&r.height>0&&n(s,r)},u=()=>{
!r.request&&!r.isGone&&(r.request=requestAnimationFrame(l))},c=new ResizeObserver(a);return c.observe(t),globalThis.addEventListener(
"resize",a),{schedule:u,measure:a,state:r,destroy:()=>{r.isGone=!0,cancelAnimationFrame(r.request),c.disconnect(),globalThis.
removeEventListener("resize",a)}}}function te(){let t=document.createElement("canvas"),e=t.getContext("2d"),n={canvas:t,
context:e,image:null,target:null,stride:0};return{bitmapFor:(s,r)=>((!n.image||s>n.image.width||r>n.image.height)&&(t.width=
Math.max(n.image?.width??0,Math.ceil(s/32)*32),t.height=Math.max(n.image?.height??0,Math.ceil(r/64)*64),n.image=e.createImageData(
t.width,t.height),n.target=new Uint32Array(n.image.data.buffer),n.stride=t.width),n)}}function mo(t,e){return{empty:uo(t,
e.empty,e.hatch,6,.8),silent:uo(t,null,e.flag,7,2.2)}}function uo(t,e,n,o,s){let r=Math.ceil(globalThis.devicePixelRatio||
1),a=document.createElement("canvas");a.width=o*r,a.height=o*r;let l=a.getContext("2d");l.scale(r,r),e&&(l.fillStyle=e,l.
fillRect(0,0,o,o)),l.strokeStyle=n,l.lineWidth=s,l.beginPath();for(let c of[-o,0,o])l.moveTo(c-1,o+1),l.lineTo(c+o+1,-1);
l.stroke();let u=t.createPattern(a,"repeat");return u.setTransform(new DOMMatrix().scale(1/r)),u}var Sa=[12,18,27,40,60,90,120,180,240,360];function po(t){return Sa.find(e=>e>=t)??t}function _t(t){return{x:0,y:0,...Te(
t)}}function Te(t){let{width:e,height:n,rows:o,slots:s,mostCellWidth:r,mostCellHeight:a}=t;return{cellWidth:Math.min(r,e/
Math.max(1,s)),cellHeight:Math.min(a,n/Math.max(1,o))}}function G(t,e){let n=Te(e),o=Y(t.cellWidth,n.cellWidth,e.mostCellWidth),
s=Y(t.cellHeight,n.cellHeight,e.mostCellHeight);return{x:Y(t.x,0,ho(e.columns,e.width/o)),y:Y(t.y,0,ho(e.rows,e.height/s)),
cellWidth:o,cellHeight:s}}function ho(t,e){let n=t-e;return n>1e-6?n:0}function Y(t,e,n){return Math.max(e,Math.min(Math.
max(e,n),Number.isFinite(t)?t:e))}function go(t,e,n,o){let s=t.x-n/t.cellWidth,r=t.y-o/t.cellHeight;return G({...t,x:s,y:r},
e)}function wo(t,e,n,o,s,r){let a=G({...t,cellWidth:t.cellWidth*n,cellHeight:t.cellHeight*o},e),l=t.x+s/t.cellWidth-s/a.
cellWidth,u=t.y+r/t.cellHeight-r/a.cellHeight;return G({...a,x:l,y:u},e)}function Se(t,e,n,o){let s=Math.floor(t.x+n/t.cellWidth),
r=Math.floor(t.y+o/t.cellHeight);return n>=0&&o>=0&&n<e.width&&o<e.height&&s>=0&&r>=0&&s<e.columns&&r<e.rows?{row:r,column:s}:
null}function ko(t,e,n,o){let s=e.width/t.cellWidth,r=e.height/t.cellHeight,a=Y(t.x,o+1-s,o),l=Y(t.y,n+1-r,n);return G({
...t,x:a,y:l},e)}function xt(t,e){let n=(o,s,r,a)=>Math.min(a,Math.ceil(o+s/r-1e-6));return{firstRow:Math.max(0,Math.floor(
t.y+1e-6)),endRow:n(t.y,e.height,t.cellHeight,e.rows),firstColumn:Math.max(0,Math.floor(t.x+1e-6)),endColumn:n(t.x,e.width,
t.cellWidth,e.columns)}}function Oe(t,e){let n=Te(e);return{across:t.cellWidth<=n.cellWidth*1.001,down:t.cellHeight<=n.cellHeight*
1.001}}function Tt(t,e){return{across:e.columns*t.cellWidth>e.width+.5,down:e.rows*t.cellHeight>e.height+.5}}function ee(t,e){
return t.x+e.width/t.cellWidth>=e.columns-.01}function Me(t,e){let n=1;for(let o=0;n*t<e;o+=1)n=[1,2,5][o%3]*10**Math.floor(
o/3);return n}function yo(t,e){let n=te(),o={grid:null,pixels:null,width:0,height:0,patch:null,bitmap:null},s=null,r=c=>{s=c;let[f,d]=[
t.clientWidth/c.scale,Math.min(t.clientHeight/c.scale,c.layout.top+c.bounds.height)];f===0||c.grid.rows===0||(Oa(o,n,c,f,
d),Ma(t,o,c,f,d))},a=c=>{let f=t.getBoundingClientRect(),{view:d,bounds:m}=s,h=(c.clientX-f.left)/s.scale/o.width*m.columns-
m.width/d.cellWidth/2,p=((c.clientY-f.top)/s.scale-s.layout.top)/$e(s,o.height)*m.rows-m.height/d.cellHeight/2;e(G({...d,
x:h,y:p},m))},l=c=>{t.setPointerCapture(c.pointerId),a(c)},u=c=>t.hasPointerCapture(c.pointerId)&&a(c);return t.addEventListener(
"pointerdown",l),t.addEventListener("pointermove",u),{update:r}}function $e(t,e){return e-t.layout.top}function Oa(t,e,n,o,s){
if(t.grid===n.grid&&t.pixels===n.pixels&&t.width===o&&t.height===s)return;let{rows:a,columns:l,levels:u}=n.grid,c=I({cellWidth:o/
l,cellHeight:$e(n,s)/a},1),f=Jt({firstRow:0,endRow:a,firstColumn:0,endColumn:l},c),d=e.bitmapFor(f.groups,f.bins);Qt(d.target,
d.stride,u,c,f,n.pixels),d.context.putImageData(d.image,0,0,0,0,f.groups,f.bins),Object.assign(t,{grid:n.grid,pixels:n.pixels,
width:o,height:s,patch:f,bitmap:d,detail:c})}function Ma(t,e,n,o,s){let{view:r,bounds:a,palette:l,ratio:u,layout:c,grid:f}=n,
d=t.clientHeight/n.scale,[m,h]=[Math.round(o*u),Math.round(d*u)];(t.width!==m||t.height!==h)&&Object.assign(t,{width:m,height:h});
let p=t.getContext("2d"),w=$e(n,s);p.setTransform(u,0,0,u,0,0),p.clearRect(0,0,o,d),p.translate(0,c.top),p.fillStyle=l.empty,
p.fillRect(0,0,o,w);let{patch:x,bitmap:y,detail:k}=e,O={x:x.groups*k.columns/f.columns,y:x.bins*k.rows/f.rows};p.imageSmoothingEnabled=
!1,p.drawImage(y.canvas,0,0,x.groups,x.bins,0,0,o*O.x,w*O.y),p.clearRect(0,w,o,d);let M=Tt(r,a);!M.across&&!M.down||$a(p,
n,o,w)}function $a(t,{view:e,bounds:n,palette:o},s,r){let a=(d,m,h)=>Math.min(1,d/m/h),l=e.x/n.columns*s,u=e.y/n.rows*r,
c=Math.max(4,a(n.width,e.cellWidth,n.columns)*s),f=Math.max(4,a(n.height,e.cellHeight,n.rows)*r);t.fillStyle=o.surface,t.
globalAlpha=.55,t.fillRect(0,0,s,u),t.fillRect(0,u+f,s,r-u-f),t.globalAlpha=1,t.strokeStyle=o.accent,t.lineWidth=2,t.strokeRect(
l+1,Math.min(u+1,r-4),Math.max(3,c-2),Math.max(3,f-2))}function _o({it:t,show:e,found:n,surface:o,tooltip:s,spoken:r,on:a}){let l=(k,O)=>[k-t.layout.left,O-t.layout.top],u=()=>[
t.bounds.width/2+t.layout.left,t.bounds.height/2+t.layout.top],c=(k,O,M)=>s.show(a.words(n(k)),O*t.scale,M*t.scale),f=()=>{
r.textContent=A(a.words(n(t.focus)).filter(Boolean).join(", "));let k=t.layout.left+(t.focus.column+1-t.view.x)*t.view.cellWidth;
c(t.focus,k,t.layout.top+(t.focus.row+1-t.view.y)*t.view.cellHeight)},d=k=>{let O=k?.row===t.hover?.row&&k?.column===t.hover?.
column;t.hover=k,O||o.schedule()},m=(k,O)=>{t.isPointed=k!==null,t.pointedAt_ms=performance.now();let M=k===null||!t.view?
null:Se(t.view,t.bounds,...l(k,O)),v=M&&n(M);d(v&&{row:v.row,column:v.column}),M?c(M,k,O):s.hide()},h=(k,O)=>{let M=Se(t.
view,t.bounds,...l(k,O));M&&(t.focus=M,a.pick(n(M)))},p=(k,O,M,v)=>{let at=M===void 0?u():[M,v];return e(wo(t.view,t.bounds,
k,O,...l(...at)))},w=(k,O,M)=>_t(t.bounds).cellHeight<t.bounds.mostCellHeight*.999?p(1,k,O,M):p(k,1,O,M),x=()=>{let{grid:k}=t;
if(t.focus||k.rows===0||k.columns===0)return;if(k.startCell!==null){t.focus={row:Math.floor(k.startCell/k.columns),column:k.
startCell%k.columns};return}let O=k.selectedRow??k.flaggedRows[0]??0;t.focus={row:O,column:k.selectedColumn??(k.hasSlots?
k.columns-1:0)}},y=(k,O)=>{let{grid:M}=t;if(x(),!t.focus)return;t.isFocused=!0;let v=I(t.view,t.ratio);t.focus={row:bo(t.
focus.row,k,v.rows,M.rows),column:bo(t.focus.column,O,v.columns,M.columns)},t.view=ko(t.view,t.bounds,t.focus.row,t.focus.
column),o.schedule(),f()};return{pointAt:m,pickAt:h,zoomBy:p,zoomRows:w,moveFocus:y,panBy:(k,O)=>e(go(t.view,t.bounds,k,
O)),fit:()=>e(_t(t.bounds)),pickFocus:()=>t.focus&&a.pick(n(t.focus)),leaveFocus:()=>t.focus?(t.focus=null,t.isFocused=!1,
s.hide(),o.schedule(),!0):!1,focus:k=>{t.isFocused=k,o.schedule(),!(!k||!t.view)&&(x(),t.focus&&y(0,0))},blur:()=>{t.isFocused=
!1,s.hide(),o.schedule()}}}function bo(t,e,n,o){return e===1/0?o-1:e===-1/0?0:Y(t+e*n,0,o-1)}var Ea=3.2,Ra=24;function Ee({context:t,names:e},n,o,s=!1){let r=`${o}|${n}`;return e.has(r)||e.set(r,Aa(t,n,o,s)),e.get(
r)}function Aa(t,e,n,o){let s=e,r=()=>s===e?e:o?`\u2026${s}`:`${s}\u2026`;for(;s.length>1&&t.measureText(r()).width>n;)s=
o?s.slice(1):s.slice(0,-1);return r()}function Re({view:t,bounds:e,layout:n},o){let s=(o+.5-t.y)*t.cellHeight;return n.top+
Math.max(5,Math.min(e.height-5,s))}function xo(t,e){let{context:n,grid:o,view:s,layout:r,palette:a}=t,l=Me(s.cellHeight,
14);n.textAlign="right",n.textBaseline="middle";let u=(d,m)=>{let h=Re(t,d);return n.fillStyle=m,n.fillText(Ee(t,o.rowName(
d),r.left-15,!0),r.left-13,h),h},c=[],f=(d,m)=>{if(d===null||d<e.firstRow||d>=e.endRow)return;let h=Re(t,d);c.every(p=>Math.
abs(h-p)>=12)&&c.push(u(d,m))};f(o.selectedRow,a.accent);for(let d of o.flaggedRows)c.length<Ra&&f(d,a.flag);for(let d=Math.
ceil(e.firstRow/l)*l;d<e.endRow;d+=l)f(d,a.quiet)}function To(t,e){let{context:n,grid:o,view:s,bounds:r,layout:a,palette:l}=t;
if(n.fillStyle=l.quiet,o.hasNamesOnTop)return Na(t,e);let u=a.top>a.bottom,c=Me(s.cellWidth,o.columnLabelRoom),f=u?a.top-
9:a.top+Math.min(r.height,r.rows*s.cellHeight)+12;n.textAlign="center",n.textBaseline="middle";for(let d=Math.ceil(e.firstColumn/
c)*c;d<e.endColumn;d+=c){let m=(d+.5-s.x)*s.cellWidth;if(m<0||m>r.width)continue;let[h,p]=[o.columnName(d),o.columnName(
d).length*Ea];n.fillText(h,a.left+Math.max(p-8,Math.min(r.width+a.right-p,m)),f)}n.textAlign="right",n.fillText(o.corner,
a.left-13,f)}function Na(t,e){let{context:n,grid:o,view:s,layout:r,palette:a}=t,{isSlanted:l}=r,u=Math.max(1,Math.ceil(13/
s.cellWidth)),c=l?(r.top-14)*Math.SQRT2:s.cellWidth-4;n.textBaseline=l?"middle":"alphabetic",n.textAlign=l?"left":"cente\
r";for(let f=e.firstColumn;f<e.endColumn;f+=u){n.save(),n.translate(r.left+(f+.5-s.x)*s.cellWidth,r.top-8),l&&n.rotate(-Math.
PI/4),n.fillStyle=f===o.selectedColumn?a.accent:a.quiet;let d=l?"":o.columnKind(f);n.fillText(Ee(t,o.columnName(f),c),0,
d?-13:0),n.fillStyle=a.quiet,d&&n.fillText(Ee(t,d,c),0,0),n.restore()}}function So(t,e){let{context:n,grid:o,layout:s,palette:r}=t;
n.fillStyle=r.flag,n.strokeStyle=r.flag,n.lineWidth=1;let a=-10;for(let l of o.flaggedRows){if(l<e.firstRow||l>=e.endRow)
continue;let u=Re(t,l);u-a<1||(a=u,n.beginPath(),n.moveTo(s.left-2,u),n.lineTo(s.left-10,u-4.5),n.lineTo(s.left-10,u+4.5),
n.closePath(),o.suspectRows.has(l)?n.stroke():n.fill())}}var $o=13,va=700,Ca=24,Oo=7,Mo={width:34,height:15};function Eo(t){let{context:e,bounds:n,layout:o,palette:s,ratio:r}=t,
a=xt(t.view,n);e.setTransform(r,0,0,r,0,0),e.clearRect(0,0,o.left+n.width+o.right,o.top+n.height+o.bottom),e.font=`11px ${s.
font}`,xo(t,a),To(t,a),So(t,a),e.save(),e.beginPath(),e.rect(o.left,o.top,n.width,n.height),e.clip(),e.translate(o.left,
o.top),Ha(t,a),Ia(t),Da(t,a),Ka(t,a),ja(t,a),Ba(t),e.restore(),Ua(t)}function Ha(t,e){let{view:n,ratio:o}=t,s=(e.endRow-
e.firstRow)*(e.endColumn-e.firstColumn);s<=0||(Math.min(n.cellWidth,n.cellHeight)>=$o&&s<=va?Pa(t,e):(Wa(t,e,I(n,o)),La(
t,e)),n.cellWidth>=Mo.width&&n.cellHeight>=Mo.height&&Fa(t,e))}function Wa(t,e,n){let{context:o,grid:s,view:r,bounds:a,patterns:l,
pixels:u,scratch:c}=t,f=Jt(e,n),d=c.bitmapFor(f.groups,f.bins);Qt(d.target,d.stride,s.levels,n,f,u),d.context.putImageData(
d.image,0,0,0,0,f.groups,f.bins);let m=(f.firstGroup*n.columns-r.x)*r.cellWidth,h=(f.firstBin*n.rows-r.y)*r.cellHeight;o.
save(),o.beginPath(),o.rect(-r.x*r.cellWidth,-r.y*r.cellHeight,a.columns*r.cellWidth,a.rows*r.cellHeight),o.clip(),o.fillStyle=
l.empty,o.fillRect(0,0,a.width,a.height),o.imageSmoothingEnabled=!1,o.drawImage(d.canvas,0,0,f.groups,f.bins,m,h,f.groups*
n.columns*r.cellWidth,f.bins*n.rows*r.cellHeight),o.restore()}function La({context:t,view:e,palette:n,ratio:o},s){let[r,
a]=[1/o,m=>Math.round(m*o)/o],l=(m,h,p)=>a((m-h)*p),[u,c]=[l(s.firstColumn,e.x,e.cellWidth),l(s.endColumn,e.x,e.cellWidth)],
[f,d]=[l(s.firstRow,e.y,e.cellHeight),l(s.endRow,e.y,e.cellHeight)];if(t.fillStyle=n.surface,e.cellHeight>=5){let m=e.cellHeight>=
12?2:Math.max(r,1);for(let h=s.firstRow+1;h<s.endRow;h+=1)t.fillRect(u,l(h,e.y,e.cellHeight)-m/2,c-u,m)}if(!(e.cellWidth<
8))for(let m=s.firstColumn+1;m<s.endColumn;m+=1)t.fillRect(l(m,e.x,e.cellWidth)-.5,f,1,d-f)}function Ia({context:t,grid:e,
view:n,palette:o}){if(e.cells===null||e.cells===e.rows*e.columns)return;let[s,r]=[Math.floor(e.cells/e.columns),e.cells%
e.columns],a=(r-n.x)*n.cellWidth;t.fillStyle=o.surface,t.fillRect(a,(s-n.y)*n.cellHeight,(e.columns-r)*n.cellWidth+1,n.cellHeight+
1)}function Ro({grid:t,view:e},n,o){for(let s=n.firstColumn;s<n.endColumn;s+=1){let r=t.levels[s]?.[0],a=(s-e.x)*e.cellWidth;
for(let l=n.firstRow;l<n.endRow;l+=1)o(a,(l-e.y)*e.cellHeight,r?r[l]:0,l,s)}}function Pa(t,e){let{context:n,view:o,styles:s,
patterns:r}=t,a=Math.min(4,o.cellWidth/5,o.cellHeight/5);Ro(t,e,(l,u,c)=>{n.fillStyle=c?s[c].fill:r.empty,n.beginPath(),
n.roundRect(l+1,u+1,o.cellWidth-2,o.cellHeight-2,a),n.fill()})}function Fa(t,e){let{context:n,grid:o,view:s,palette:r,styles:a}=t;
n.textAlign="center",n.textBaseline="middle",n.font=`${s.cellHeight>=26&&s.cellWidth>=48?12.5:11}px ${r.font}`,Ro(t,e,(l,u,c,f,d)=>{
if(!c||o.hatched.has(f*o.columns+d))return;n.fillStyle=a[c].ink;let m=o.exactAt?o.exactAt(f,d):zt(c);n.fillText(Yn(m),l+
s.cellWidth/2,u+s.cellHeight/2+.5)}),n.font=`11px ${r.font}`}function Da({context:t,grid:e,view:n,palette:o,patterns:s},r){
if(e.hatched.size===0)return;let a=Math.min(n.cellWidth,n.cellHeight)>=$o?1:0;for(let l of e.hatched){let[u,c]=[Math.floor(
l/e.columns),l%e.columns];if(!(u>=r.firstRow&&u<r.endRow&&c>=r.firstColumn&&c<r.endColumn))continue;let d=(c-n.x)*n.cellWidth+
a,m=(u-n.y)*n.cellHeight+a,h=Math.max(3,n.cellWidth-2*a),p=Math.max(3,n.cellHeight-2*a);t.fillStyle=o.surface,t.fillRect(
d,m,h,p),t.fillStyle=s.silent,t.fillRect(d,m,h,p),t.strokeStyle=o.flag,t.lineWidth=1,t.strokeRect(d+.5,m+.5,h-1,p-1)}}function Ka({
context:t,grid:e,view:n,bounds:o,palette:s},r){t.fillStyle=s.quiet;for(let a of e.rowBreaks)n.cellHeight<3||a<=r.firstRow||
a>=r.endRow||t.fillRect(0,Math.round((a-n.y)*n.cellHeight)-.5,Math.min(o.width,(o.columns-n.x)*n.cellWidth),1);for(let a of e.
columnBreaks){if(a<=r.firstColumn||a>=r.endColumn)continue;let l=Math.round((a-n.x)*n.cellWidth);for(let u=0;u<Math.min(
o.height,o.rows*n.cellHeight);u+=6)t.fillRect(l-1,u,2,3)}}function Ba({context:t,grid:e,view:n,bounds:o,palette:s}){if(e.
selectedRow===null)return;let r=(e.selectedRow-n.y)*n.cellHeight;if(r>o.height||r+n.cellHeight<0)return;t.strokeStyle=s.
accent,t.lineWidth=1.5;let a=Math.min(o.width,(o.columns-n.x)*n.cellWidth);t.strokeRect(.75,r-.75,a-1.5,n.cellHeight+1.5)}
function ja({context:t,grid:e,view:n,bounds:o,palette:s},r){let a=e.flaggedRows.filter(c=>c>=r.firstRow&&c<r.endRow);if(a.
length+e.flaggedCells.size>Ca)return;let l=Math.min(o.width,(o.columns-n.x)*n.cellWidth),u=(c,f,d,m)=>{let h=Math.max(Oo,
n.cellHeight),p=(c+.5-n.y)*n.cellHeight-h/2;t.setLineDash(m?[4,3]:[]),t.strokeRect(f+1,p+1,d-2,h-2)};t.save(),t.strokeStyle=
s.flag,t.lineWidth=2;for(let c of a)u(c,0,l,e.suspectRows.has(c));for(let[c,f]of e.flaggedCells){let[d,m]=[Math.floor(c/
e.columns),c%e.columns],h=Math.max(Oo,n.cellWidth);u(d,(m+.5-n.x)*n.cellWidth-h/2,h,!f)}t.restore()}function Ua({context:t,
grid:e,view:n,layout:o,palette:s,hover:r,focus:a,isFocused:l}){let u=(c,f,d)=>{let[m,h]=[Math.max(5,n.cellWidth),Math.max(
5,n.cellHeight)],p=o.left+(c.column+.5-n.x)*n.cellWidth-m/2,w=o.top+(c.row+.5-n.y)*n.cellHeight-h/2;t.strokeStyle=f,t.lineWidth=
d,t.strokeRect(p,w,m,h)};e.markedCell!==null&&u({row:Math.floor(e.markedCell/e.columns),column:e.markedCell%e.columns},s.
accent,2.5),r&&u(r,s.ink,1.5),!(!a||!l)&&(u(a,s.surface,5),u(a,s.accent,2.5))}function No(t,e,n=()=>1){let o=r=>{let a=t.getBoundingClientRect();return[(r.clientX-a.left)/n(),(r.clientY-a.top)/n()]},
s=[...Ga(t,e,o),["wheel",r=>za(r,e,o)],["dblclick",r=>e.zoomRows(r.shiftKey?.4:2.5,...o(r))],["keydown",r=>Va(r,e)],["fo\
cus",()=>e.focus(t.matches(":focus-visible"))],["blur",()=>e.blur()]];for(let[r,a]of s)t.addEventListener(r,a,{passive:!1});
return()=>s.forEach(([r,a])=>t.removeEventListener(r,a))}function Ga(t,e,n){let o=new Map,s=0,r=u=>{u.button>0||(t.setPointerCapture?.(
u.pointerId),o.set(u.pointerId,n(u)),s=o.size>1?1/0:0)},a=u=>{let[c,f]=n(u),d=o.get(u.pointerId);if(!d){u.pointerType!==
"touch"&&e.pointAt(c,f);return}o.size>1&&qa(o,u.pointerId,[c,f],e),s+=Math.hypot(c-d[0],f-d[1]),o.size===1&&s>4&&(e.pointAt(
null),e.panBy(c-d[0],f-d[1])),o.set(u.pointerId,[c,f])},l=u=>{!o.delete(u.pointerId)||u.type==="pointercancel"||s>4||(e.
pointAt(...n(u)),e.pickAt(...n(u)))};return[["pointerdown",r],["pointermove",a],["pointerup",l],["pointercancel",l],["po\
interleave",u=>u.pointerType!=="touch"&&e.pointAt(null)]]}function qa(t,e,n,o){let[s]=[...t].filter(([l])=>l!==e).map(([
,l])=>l),r=t.get(e),a=l=>{let[u,c]=[Math.abs(r[l]-s[l]),Math.abs(n[l]-s[l])];return u<24||c<24?1:c/u};o.panBy((n[0]-r[0])/
2,(n[1]-r[1])/2),o.zoomBy(a(0),a(1),(n[0]+s[0])/2,(n[1]+s[1])/2)}function za(t,e,n){let o=t.deltaMode===1?16:t.deltaMode===
2?400:1,[s,r]=[t.deltaX*o,t.deltaY*o],[a,l]=n(t);if(t.ctrlKey||t.metaKey){let c=Math.exp(-Math.max(-60,Math.min(60,r||s))/
150);t.shiftKey?e.zoomBy(c,1,a,l):e.zoomRows(c,a,l),e.pointAt(a,l),t.preventDefault();return}(t.shiftKey&&s===0?e.panBy(
-r,0):e.panBy(-s,-r))&&t.preventDefault(),e.pointAt(a,l)}var Ya={ArrowUp:[-1,0],ArrowDown:[1,0],ArrowLeft:[0,-1],ArrowRight:[
0,1],PageUp:[-20,0],PageDown:[20,0]},Ao=60;function Va(t,e){t.altKey||t.metaKey||Xa(t,e)&&t.preventDefault()}function Xa(t,e){
let n=Ya[t.key];if(n&&t.shiftKey)return e.panBy(-n[1]*Ao,-n[0]*Ao),!0;if(n&&!t.ctrlKey)return e.moveFocus(...n),!0;let o={
Home:()=>t.ctrlKey?e.moveFocus(-1/0,0):e.moveFocus(0,-1/0),End:()=>t.ctrlKey?e.moveFocus(1/0,0):e.moveFocus(0,1/0),Enter:()=>e.
pickFocus()," ":()=>e.pickFocus(),Escape:()=>e.leaveFocus(),"+":()=>e.zoomRows(1.4),"=":()=>e.zoomRows(1.4),"-":()=>e.zoomRows(
1/1.4),"]":()=>e.zoomBy(1.4,1),"[":()=>e.zoomBy(1/1.4,1),0:()=>e.fit()};return t.ctrlKey&&!["Home","End"].includes(t.key)||
!Object.hasOwn(o,t.key)?!1:o[t.key]()!==!1}var Za=6e4,Q={rows:0,columns:0,levels:[],rowKeys:[],columnKeys:[],rowName:()=>"",columnName:()=>"",columnKind:()=>"",columnLabelRoom:70,
corner:"",flaggedRows:[],suspectRows:new Set,flaggedCells:new Map,isRanking:!1,selectedRow:null,selectedColumn:null,markedCell:null,
startCell:null,rowBreaks:[],columnBreaks:[],hatched:new Set,cells:null,hasNamesOnTop:!1,layoutFor:null,hasSlots:!1,mostCellWidth:60,
mostCellHeight:30};function vo({host:t,canvas:e,tooltip:n,spoken:o,layout:s,on:r}){let a={grid:Q,view:null,bounds:null,layout:s,
palette:null,pixels:null,styles:null,patterns:null,scratch:te(),names:new Map,hover:null,focus:null,isFocused:!1,isPointed:!1,
pointedAt_ms:0,ratio:1,scale:1,draws:0},c=fo(t,e,(y,k)=>{if(!a.view)return;a.palette||Object.assign(a,Ja(t,y)),a.draws+=
1,Eo(Object.assign(a,{context:y,ratio:k.ratio}));let{across:O,down:M}=Tt(a.view,a.bounds),v=O||M?"none":"pan-y";e.style.
touchAction!==v&&(e.style.touchAction=v),r.changed(a)},y=>{a.patterns=a.palette=null,Object.assign(a,{ratio:y.ratio,scale:y.
scale}),Qa(a,y)}),f=y=>{let k=a.view===null||Object.keys(y).some(O=>y[O]!==a.view[O]);return a.view=y,k&&c.schedule(),k},
m=_o({it:a,show:f,found:y=>co(a.grid.levels,a.grid.rows,I(a.view,a.ratio),y.row,y.column),surface:c,tooltip:n,spoken:o,on:r}),
h=No(e,m,()=>c.state.scale),p=to(()=>{a.palette=null,c.schedule()});return{it:a,actions:m,setGrid:(y,k=!1)=>{let O=a.grid;
a.grid=y,a.names.clear(),c.measure(),a.bounds&&c.state.width&&tl(a,O,c.state,k),c.schedule()},show:f,destroy:()=>[h,p,c.
destroy].forEach(y=>y())}}function Ja(t,e){let n=Kn(t);return{palette:n,pixels:Bn(n),styles:jn(n),patterns:mo(e,n)}}function Co(t,e){
let{grid:n}=t;n.layoutFor&&(t.layout=n.layoutFor(e.width));let{layout:o}=t;return{columns:n.columns,rows:n.rows,slots:n.
hasSlots?po(n.columns):n.columns,width:Math.max(1,e.width-o.left-o.right),height:Math.max(1,e.height-o.top-o.bottom),mostCellWidth:n.
mostCellWidth,mostCellHeight:n.mostCellHeight}}function Qa(t,e){let n=t.view?Oe(t.view,t.bounds):{across:!0,down:!0};t.bounds=
Co(t,e);let o=_t(t.bounds),s={...t.view??o};n.across&&(s.cellWidth=o.cellWidth),n.down&&(s.cellHeight=o.cellHeight),t.view=
G(s,t.bounds)}function Ae(t){return t.isFocused||t.isPointed&&performance.now()-t.pointedAt_ms<Za}function tl(t,e,n,o){let s=Ae(
t),r=ee(t.view,t.bounds),a=Oe(t.view,t.bounds),l=el(e,t.grid);t.bounds=Co(t,n);let u=_t(t.bounds),c={...t.view,x:t.view.
x-l};(a.down||e.rows===0)&&(c.cellHeight=u.cellHeight),(e.columns===0||a.across&&!s)&&(c.cellWidth=u.cellWidth),r&&!s&&(c.
x=t.grid.columns),o?c.y=0:t.grid.isRanking||(c.y+=nl(e,t.grid,c.y)),t.view=s&&l>0?{...G(c,t.bounds),x:c.x}:G(c,t.bounds),
t.hover=null,t.focus=ol(t.focus,e,t.grid,l)}function el(t,e){if(t.columns===0)return 0;for(let n=0;n<t.columns;n+=1){let o=e.
columnKeys.indexOf(t.columnKeys[n]);if(o>=0)return n-o}return 0}function nl(t,e,n){let o=Math.floor(n);if(t.rows===0||t.
rowKeys[o]===e.rowKeys[o])return 0;let s=e.rowKeys.indexOf(t.rowKeys[o]);return s<0?0:s-o}function ol(t,e,n,o){if(!t||n.
rows===0||n.columns===0)return null;let s=n.rowKeys.indexOf(e.rowKeys[t.row]);return{row:s<0?Y(t.row,0,n.rows-1):s,column:Y(
t.column-o,0,n.columns-1)}}var sl="Arrow keys move from cell to cell, Home and End to the ends, Enter chooses the rank. Plus and minus zoom, bracke\
ts zoom across, 0 shows all, Shift with arrows pans, Escape leaves.",rl="(max-width: 40rem)",al=250;function St(t,{part:e,
label:n,layout:o,marks:s,hasMinimap:r,tableCaption:a,tableColumn:l,on:u}){t.dataset.part||(t.dataset.part=e),t.classList.
add("chart");let c=_("p","chart-keys",{id:`${e}-keys`},sl),f=_("canvas","chart-canvas",{tabindex:"0",role:"application",
"aria-roledescription":"heat map","aria-label":n,"aria-describedby":`${e}-keys`}),d=_("div","chart-stage",{},f),m=_("can\
vas","chart-minimap",{"aria-hidden":"true"}),h=_("p","chart-note"),p=_("div","chart-tools"),w=Xn(s),x=Jn(),y=Qn(a,l),k=_(
"div","chart-body",{},d,...r?[m]:[]),O=_("div","chart-foot",{},w.element,h);t.replaceChildren(p,k,O,c,x,y.element);let M=null,
v=null,at=K=>{K.palette!==M&&w.setPalette(M=K.palette),v?.update(K),u.changed(K)},ht=vo({host:d,canvas:f,tooltip:Zn(d),spoken:x,
layout:o,on:{...u,changed:at}});return r&&(v=yo(m,ht.show)),{heat:ht,setHeight:K=>{let $t=window.matchMedia(rl).matches?
al:K,it=`${Math.min(K,$t)/16}rem`;k.style.height!==it&&(k.style.height=it)},canvas:f,tools:p,stage:d,note:h,body:k,table:y,
destroy:()=>{ht.destroy(),t.replaceChildren(),t.classList.remove("chart")}}}function ne(t,e,n){let o=(r,a,l)=>_("span","\
chart-group",{role:"group","aria-label":`zoom ${r}`},_("span","chart-group-word",{},r),yt("\u2212",`${r}: zoom out`,l),yt(
"+",`${r}: zoom in`,a)),s=[o(e,()=>t.zoomBy(1,1.6),()=>t.zoomBy(1,.625))];return n&&s.push(o(n,()=>t.zoomBy(1.6,1),()=>t.
zoomBy(1/1.6,1))),[...s,yt("all","show all",()=>t.fit())]}var ll=10,il=["lost","missing"],oe=[{name:"rank",words:"by rank"},{name:"node",words:"by host"},{name:"worst",words:"wor\
st first"},{name:"flagged",words:"only flagged"}],Ne=new WeakMap;function q(t){if(!Ne.has(t)){let[e,n]=[cl(t),ul(t)];Ne.
set(t,{known:e,flagged:n,worst:ml(t,e,n)})}return Ne.get(t)}function cl(t){let{ranks:e}=t,n=e.nodes?.map(A),o=(s,r)=>r==
null?null:s?.[r]??null;return new Map(e.rank.map((s,r)=>[s,{index:r,nodeIndex:e.node?.[r]??-1,node:o(n,e.node?.[r]),role:e.
role?.[r]??null,state:o(e.states,e.state?.[r])}]))}function ul(t){let e=new Map,n=(o,s,r=!0)=>{o!=null&&(!e.has(o)||r&&!e.
get(o).isSure)&&e.set(o,{why:s,isSure:r})};for(let o of t.hangs??[])o.state!=="lost"&&(o.culprits??[]).forEach(s=>n(s,"h\
ang"));for(let o of t.verdicts??[]){if(!o.stands||o.silenced)continue;let s=o.state!=="suspect",r=s?"slow":"suspect";o.scope===
"rank"&&n(o.rank,r,s),o.scope==="host"&&fl(t,o.node).forEach(a=>n(a,`${r} host`,s))}return(t.ranks?.state??[]).forEach((o,s)=>{
let r=t.ranks.states[o];il.includes(r)&&n(t.ranks.rank[s],r)}),e}function fl(t,e){let{rank:n,node:o,nodes:s}=t.ranks;return n.
filter((r,a)=>s[o[a]]===e)}function se(t,e,n,o,s){let r=e.ranks.map((l,u)=>u),a=l=>e.ranks[l];if(t==="flagged")return r.
filter(l=>o.has(a(l))||a(l)===s);if(t==="node"){let l=e.ranks.map(u=>n.get(u)?.nodeIndex??1/0);return r.sort((u,c)=>l[u]-
l[c]||a(u)-a(c))}if(t==="worst"){let l=dl(e,ll);return r.sort((u,c)=>l[c]-l[u]||a(u)-a(c))}return r}function dl(t,e){let n=t.
ranks.length,[o,s]=[new Float64Array(n),new Uint16Array(n)],r=Math.max(0,t.columns.length-e);for(let a=r*n;a<t.bytes.length;a+=
1)t.bytes[a]!==0&&(o[a%n]+=t.bytes[a],s[a%n]+=1);return o.map((a,l)=>s[l]?a/s[l]:0)}function re(t,e){let[n,o]=[[],new Set];
return e.size===0?{flaggedRows:n,suspectRows:o}:(t.forEach((s,r)=>{let a=e.get(s);a&&(n.push(r),a.isSure||o.add(r))}),{flaggedRows:n,
suspectRows:o})}function ml(t,e,n,o=20){let s=t.slowdowns?.overall??[],{rank:r}=t.ranks,a=kt(t.ranks,s),l=r.map((c,f)=>(n.
has(c)?1e6:0)+(s[f]??-1)),u=r.map((c,f)=>f).filter(c=>l[c]>=0);return u.sort((c,f)=>l[f]-l[c]||c-f),u.slice(0,o).map(c=>({
rank:r[c],slowdown:s[c]??null,isLone:a(c),node:e.get(r[c]).node,state:e.get(r[c]).state,why:n.get(r[c])?.why??null}))}var hl={named:.03,otherwise:.05},pl=100,gl=16;function Wo(t){let e=wl(t),n=[];for(let o=0;o<e.columns;o+=1){let s=new Uint8Array(
e.rows);for(let r=0;r<e.rows;r+=1)s[r]=nt(e.at(r,o)?.slowdown);n.push(bt(s))}return{...e,levels:n,hot:Tl(e,t.heat.pattern)}}
function wl(t){let{cells:e,silent:n}=t.heat,o=kl(t),s=new Map,r=(a,l,u)=>{let c=o.placeOf(a,l);s.has(c)||s.set(c,{stage:a,
data:l,slowdown:u,ranks:[]})};for(let[a,l,u]of e)r(a,l,u);for(let[a,l]of n)r(a,l,null);return{...o,base:t.heat.base,placeOfRank:bl(
t,s,o),silent:new Set(n.map(([a,l])=>o.placeOf(a,l))),known:q(t).known,at:(a,l)=>s.get(a*o.columns+l)}}function kl(t){let{
stages:e,data_ranks:n}=t.heat,[o,s]=[Ho(e),Ho(n)],r=t.heat.by_rank??(!t.ranks.dp&&!t.ranks.pp);return e.length>1||n.length<=
gl?{rows:n.length?e.length:0,columns:n.length,count:e.length*n.length,isRanks:r,rowName:a=>r?"ranks":`stage ${e[a]}`,columnName:a=>String(
n[a]),corner:r?"rank":"data rank",placeOf:(a,l)=>o.get(a)*n.length+s.get(l)}:yl(t,n,s,r)}function yl(t,e,n,o){let s=o?_l(
t.ranks):0,r=xl(e.length,s||8),{known:a}=q(t),l=u=>{let c=e[u*r];return r===s?a.get(c)?.node??`rank ${c}`:`${o?"rank":"d\
ata"} ${c}`};return{rows:Math.ceil(e.length/r),columns:r,count:e.length,isRanks:o,rowName:l,columnName:u=>`+${u}`,corner:o?
"rank":"data rank",placeOf:(u,c)=>n.get(c)}}function Ho(t){return new Map(t.map((e,n)=>[e,n]))}function bl(t,e,{isRanks:n,
placeOf:o}){let{rank:s,pp:r}=t.ranks,a=t.ranks.dp??t.heat.data_of_rank,l=t.slowdowns?.overall??[],u=new Map;return s.forEach(
(c,f)=>{let d=n?o(0,c):o(r?.[f]??0,a?.[f]??0),m=e.get(d);if(!m)return;u.set(c,d),m.ranks.push(c);let h=l[f]??0;(m.rank===
void 0||h>m.worst)&&Object.assign(m,{rank:c,worst:h})}),u}function _l({node:t}){let e=new Map;for(let o of t??[])e.set(o,
(e.get(o)??0)+1);let n=[...e.values()];return n.length>1&&n.slice(0,-1).every(o=>o===n[0])?n[0]:0}function xl(t,e){return t<=
e*12?e:e*Math.max(1,Math.round(Math.sqrt(t*2.5)/e))}function Tl(t,e){if(e==="even")return"";let n=[];for(let l=0;l<t.rows;l+=
1)for(let u=0;u<t.columns;u+=1){let c=t.at(l,u);c?.slowdown&&n.push(c)}let o=n.reduce((l,{slowdown:u})=>Math.max(l,u),1),
s=hl[e.startsWith("hot_")?"named":"otherwise"],r=1+Math.max(s,(o-1)/2);return n.filter(({slowdown:l})=>l>=r).sort((l,u)=>u.
slowdown-l.slowdown).slice(0,pl).map(({stage:l,data:u})=>`${l},${u}`).join(";")}var ve="http://www.w3.org/2000/svg",Ht=4,Sl=[{name:"hot_cell",words:"one hot cell",meaning:"its GPU, its host or its dat\
a",isHot:(t,e)=>t===1&&e===2},{name:"hot_row",words:"a hot row",meaning:"an uneven pipeline stage",isHot:t=>t===Ht-1},{name:"\
hot_column",words:"a hot column",meaning:"one data rank is slow in all stages: its host or its data",isHot:(t,e)=>e===2},
{name:"spread",words:"heat everywhere",meaning:"uneven sequences, or pauses on changing ranks",isHot:(t,e)=>(t*3+e*5)%4<
2},{name:"silent",words:"hatched",meaning:"a worker is silent or stuck",isHot:()=>!1,isSilent:(t,e)=>t===1&&e===2},{name:"\
even",words:"even",meaning:"all workers are equally fast",isHot:()=>!1}],Ol="(min-width: 52rem)";function Lo(t){let e=new Map(
Sl.map(l=>[l.name,Ml(l)])),n=_("ul","pattern-legend",{"aria-label":"Pattern legend"},...e.values()),o=_("summary","",{},
"What the patterns mean"),s=_("details","pattern-folding",{},o,n);t.append(s);let r=!1;return{update:(l,u)=>{r||(s.open=
u&&window.matchMedia(Ol).matches),r=!0;for(let[c,f]of e)c===l?f.setAttribute("aria-current","true"):f.removeAttribute("a\
ria-current")},destroy:()=>s.remove()}}function Ml({words:t,meaning:e,isHot:n,isSilent:o}){let s=_("span","pattern-words",
{},_("strong","",{},t),_("span","",{},e));return _("li","pattern-item",{},$l(n,o),s)}function $l(t,e=()=>!1){let n=document.
createElementNS(ve,"svg"),o=(s,r)=>Object.entries(r).forEach(([a,l])=>s.setAttribute(a,l));o(n,{viewBox:"0 0 32 32",class:"\
pattern-picture","aria-hidden":"true"});for(let s=0;s<Ht*Ht;s+=1){let[r,a]=[Math.floor(s/Ht),s%Ht],l=e(r,a)?"silent":t(r,
a)?"hot":"even",u=document.createElementNS(ve,"rect");o(u,{x:a*8+.75,y:r*8+.75,width:6.5,height:6.5,rx:1.2,class:`patter\
n-cell pattern-${l}`}),n.append(u),l==="silent"&&n.append(El(a*8,r*8,o))}return n}function El(t,e,n){let o=document.createElementNS(
ve,"path");return n(o,{d:`M${t+1.2} ${e+4}l2.8-2.8M${t+1.2} ${e+6.8}l5.6-5.6M${t+4} ${e+6.8}l2.8-2.8`,class:"pattern-str\
okes"}),o}var Ce={left:66,top:24,right:2,bottom:4},Wt={most:380,row:44},Io={row:26,rows:16},Rl=200,Po={step:"Step time if only thi\
s worker were as it is / if all took the mean",peers:"Own time of every worker / its peers"},Al="No rank has reported ye\
t.";function Fo(t,e){let n={cells:null,picture:null,rank:null},o=St(t,{part:"matrix",label:"Slowdown of each worker by p\
ipeline stage and data rank",layout:Ce,marks:["flagged","silent"],hasMinimap:!1,tableCaption:"The slowest workers",tableColumn:"\
worker",on:{words:c=>Wl(n.cells,c),pick:({row:c,column:f})=>{let d=n.cells.at(c,f)?.rank;d!==void 0&&e.select({rank:d})},
changed:({view:c,ratio:f,grid:d})=>Pl(o.note,I(c,f),d)}}),s=_("p","pattern-sentence",{"data-field":"pattern-text"}),r=_(
"div","pattern-aside",{},s);o.body.after(r);let a=Lo(r);return{update:(c,f)=>{n.picture!==c&&(n.cells=Wo(c));let d=n.picture!==
c||n.rank!==f.rank;if(Object.assign(n,{picture:c,rank:f.rank}),!d)return;let{heat:m}=c;s.textContent=A(m.pattern_text??""),
a.update(m.pattern,Nl(n.cells)),t.dataset.pattern=m.pattern,t.dataset.hot=n.cells.hot,t.dataset.silent=m.silent.map(y=>y.
join(",")).join(";"),o.table.update(q(c).worst,y=>Il(n.cells,y));let h=t.closest(".card")?.querySelector(".card-head p"),
p=m.section?`, in ${A(m.section)}`:"";h&&(h.textContent=`${Po[m.base]??Po.peers}${p}`);let{flagged:w}=q(c),x=n.cells.rows?
Cl(n.cells,f.rank,w):Q;o.setHeight(Math.min(Wt.most,Math.max(1,x.rows)*Wt.row)+Ce.top+Ce.bottom),o.stage.dataset.empty=x.
rows?"":Al,o.heat.setGrid(x)},destroy:()=>{r.remove(),o.destroy()}}}function Nl({rows:t,count:e}){let n=Math.min(Wt.most,
t*Wt.row);return Io.row*Math.min(e,Io.rows)-n>Rl}function vl(t,e){let n=new Map;for(let[o,{isSure:s}]of e){let r=t.placeOfRank.
get(o);r!==void 0&&n.set(r,s||n.get(r)===!0)}return n}function Cl(t,e,n){let{rows:o,columns:s,levels:r}=t;return{...Q,rows:o,
columns:s,levels:r,rowKeys:Array.from({length:o},(a,l)=>t.rowName(l)),columnKeys:Array.from({length:s},(a,l)=>t.columnName(
l)),rowName:t.rowName,columnName:t.columnName,columnLabelRoom:30,corner:t.corner,exactAt:(a,l)=>t.at(a,l)?.slowdown??null,
flaggedCells:vl(t,n),hatched:t.silent,cells:t.count,markedCell:t.placeOfRank.get(e)??null,startCell:t.placeOfRank.get(e)??
Hl(t),mostCellWidth:96,mostCellHeight:Wt.row}}function Hl({rows:t,columns:e,silent:n,at:o}){if(n.size)return Math.min(...n);
let[s,r]=[0,-1/0];for(let a=0;a<t*e;a+=1){let l=o(Math.floor(a/e),a%e)?.slowdown??-1/0;l>r&&([s,r]=[a,l])}return s}function Wl(t,{
row:e,column:n,ranks:o}){let s=t.at(e,n);if(!s)return["no worker","",""];let r=s.rank===void 0?"":ot(s.rank,t.known.get(
s.rank)?.node),a=t.isRanks?r:`stage ${s.stage}, data rank ${s.data}`,l=t.silent.has(e*t.columns+n);return[`${a}: ${l?"si\
lent":Ll(t,s)}`,!t.isRanks&&r?s.ranks.length>1?`slowest of its ${s.ranks.length} ranks: ${r}`:r:"",l&&t.known.get(s.rank)?.
state?`state: ${t.known.get(s.rank).state}`:"",o>1?"the hottest of the cells under one pixel":""]}function Ll({base:t},{
slowdown:e}){return t==="step"?zn(e):dt(e)}function Il(t,e){let n=t.placeOfRank.get(e),o=n===void 0?null:t.at(Math.floor(
n/t.columns),n%t.columns);return!o||t.isRanks?"not reported":`stage ${o.stage}, data rank ${o.data}`}function Pl(t,{rows:e,
columns:n},o){let s=e*n,r=s>1&&o.rows?`Each mark shows the hottest of ${s} workers.`:"";t.textContent!==r&&(t.textContent=
r)}var He=["run","group","section","rank"];function Do(t){let e=new URLSearchParams(t.replace(/^#/,"")),n={};for(let o of He)
n[o]=e.has(o)?e.get(o):null;return n.rank=/^\d{1,9}$/.test(n.rank??"")?Number(n.rank):null,n}function Lt(t){let e=new URLSearchParams;
for(let o of He)t[o]!==null&&t[o]!==void 0&&e.set(o,t[o]);let n=e.toString();return n?`#${n}`:""}function Fl(t,e){let n={
...t};"run"in e&&e.run!==t.run&&Object.assign(n,{group:null,section:null,rank:null}),"group"in e&&e.group!==t.group&&Object.
assign(n,{section:null,rank:null});for(let o of He)o in e&&(n[o]=e[o]??null);return n}function mt(t,e){if(e.section!==null&&
e.section!==void 0)return e.section;let{section:n,peers:o}=t?.answer??{};return!n||!o?"":(t.sections??[]).some(({name:s})=>s===
n)?n:""}function Ko(t,e){let n=Do(t.location.hash),o=()=>{n=Do(t.location.hash),e(n)};return t.addEventListener("popstat\
e",o),t.addEventListener("hashchange",o),{chosen:()=>n,select(s){let r=Fl(n,s);if(Lt(r)===Lt(n))return;let a=r.run!==n.run;
n=r;let l=Lt(n)||t.location.pathname+t.location.search;a?t.history.pushState(null,"",l):t.history.replaceState(null,"",l),
e(n)}}}var Bo=100;function Uo(t,e){let n="",o=!1,s=0,r={runs:null,picture:null},a=()=>E(t,m()),l=()=>Dl(r.runs?.runs??[],n);function u(w){
if(o===w)return;o=w,n="";let x=l().map(y=>y.run_id);s=Math.max(0,x.indexOf(r.picture?.run.run_id)),a(),o&&t.querySelector(
"input").focus()}function c(){u(!1),t.querySelector(".run-button").focus()}function f(w){c(),e.select({run:w.run_id})}function d(w){
let x=l().slice(0,Bo),y={ArrowDown:1,ArrowUp:-1,PageDown:10,PageUp:-10};if(w.key in y)s=Math.min(x.length-1,Math.max(0,s+
y[w.key])),a(),t.querySelector("[aria-selected=true]")?.scrollIntoView({block:"nearest"});else if(w.key==="Enter")x[s]&&
f(x[s]);else if(w.key==="Escape")c();else return;w.preventDefault(),w.stopPropagation()}function m(){let w=r.picture?.run??
null;return[i("button",{type:"button",class:"run-button","aria-haspopup":"listbox","aria-expanded":String(o),onclick:()=>u(
!o)},i("span",{class:"visually-hidden"},"Run: "),w?jo(w):"Choose a run",Kl(r.runs),i("span",{"aria-hidden":"true"},"\u25BE")),
o?h():null,ql(w,e),Ul(r.runs?.runs.find(x=>x.run_id===w?.run_id))]}function h(){let w=l(),x=w.slice(0,Bo);return i("div",
{class:"popup",onkeydown:d,key:"popup"},i("input",{type:"search",role:"combobox","aria-label":"Find a run by name, job o\
r state","aria-expanded":"true","aria-controls":"run-list","aria-activedescendant":x[s]?`run-${s}`:!1,placeholder:"Find \
a run",autocomplete:"off",spellcheck:"false",value:n,oninput:y=>{n=y.target.value,s=0,a()}}),i("ul",{role:"listbox",id:"\
run-list","aria-label":"Runs"},x.map((y,k)=>p(y,k,k===s,f))),i("p",{class:"popup-note",role:"status"},Bl(w.length,x.length,
n)))}function p(w,x,y,k){let O=g(w.received_at_s)?r.runs.now_s-w.received_at_s:null;return i("li",{role:"option",id:`run\
-${x}`,key:w.run_id,"aria-selected":String(y),"data-tone":w.tone,onclick:()=>k(w)},i("span",{class:"tone-mark",title:At(
w.tone),"aria-hidden":"true"},Nt(w.tone)),i("span",{class:"visually-hidden"},`${At(w.tone)}: `),i("span",{class:"option-\
name"},jo(w)),i("span",{class:"option-says",dir:"auto"},w.headline),i("span",{class:"option-size"},jl(w,O),Gl(w)))}return document.
addEventListener("pointerdown",w=>{o&&!t.contains(w.target)&&u(!1)}),t.addEventListener("focusout",w=>{o&&w.relatedTarget&&
!t.contains(w.relatedTarget)&&u(!1)}),{update(w,x,y){r={runs:y,picture:w},t.hidden=!y||y.runs.length===0,a()}}}function Dl(t,e){
let n=e.toLowerCase().split(/\s+/).filter(Boolean);return t.filter(o=>{let s=`${o.run_id} ${o.job??""} ${o.state??""} ${o.
tone} ${o.headline??""}`;return n.every(r=>s.toLowerCase().includes(r))})}function jo(t){let e=t.job&&t.job!==t.run_id;return[
b(e?t.job:t.run_id,"run-job"),e?b(t.run_id,"run-id"):null]}function Kl(t){let e=(t?.runs.length??0)-1;return e<=0?null:i(
"span",{class:"run-count"},`+${T(e)}`,i("span",{class:"visually-hidden"}," more"))}function Bl(t,e,n){return t===0?"No m\
atching run":t>e?`${t-e} more: type to filter`:n?`${Z(t,"run")} found`:""}function jl(t,e){let n=g(t.world_size)?Z(t.world_size,
"rank"):"";return t.is_live?g(e)?`${n}, ${C(e)} ago`:n:`${n}, from history`}function Go(t){return/^https?:\/\//.test(t?.
page_url??"")?`${t.page_url}/${Lt({run:t.run_id})}`:null}function Ul(t){let e=Go(t);return e===null?null:i("a",{class:"s\
hard-link",key:"shard",href:e,title:"Its alerts and decisions are there"},i("span",{class:"visually-hidden"},"Open the p\
age of its shard, "),`on ${t.collector??t.page_url}`)}function Gl(t){let e=Go(t);return e===null?null:[", ",i("a",{class:"\
shard-link",href:e,tabindex:"-1",onclick:n=>n.stopPropagation()},`on ${t.collector??t.page_url}`)]}function ql(t,e){let n=t?.
groups??[];return n.length<2?null:i("label",{class:"group-picker",key:"group"},i("span",{},"Group"),i("select",{value:t.
group,onchange:o=>e.select({group:o.target.value})},n.map(o=>i("option",{value:o,selected:o===t.group,key:o},o||"(defaul\
t)"))))}var ae=160,qo=34;function zo(t,e){let n=t.filter(g);if(n.length===0)return i("span",{class:"muted"},"no past");let o=Math.
min(.9,...n),s=Math.max(1.2,...n),r=u=>t.length<2?ae:u/(t.length-1)*ae,a=u=>2+(1-(u-o)/(s-o))*(qo-4),l=n[n.length-1];return i(
"svg",{class:"spark",viewBox:`0 0 ${ae} ${qo}`,preserveAspectRatio:"none",role:"img","aria-label":`${e}: from ${H(n[0])}\
 to ${H(l)}, at most ${H(Math.max(...n))}`},i("line",{class:"spark-one",x1:0,x2:ae,y1:a(1).toFixed(1),y2:a(1).toFixed(1)}),
i("path",{class:"spark-line",d:zl(t,r,a)}))}function zl(t,e,n){let o=[],s=!1;return t.forEach((r,a)=>{if(g(r)){let l=`${e(
a).toFixed(1)} ${n(r).toFixed(1)}`;o.push(s?`L${l}`:`M${l}h0.01`)}s=g(r)}),o.join("")}var Yl=2,Yo=5;function Vo(t,e){let n=(t.profiles||[]).slice(0,Yl);return n.length?i("div",{class:"profiles",key:"profile\
s"},i("h3",{},"Profiles, operator by operator"),n.map(o=>[i("p",{dir:"auto"},F(o.sentence)),o.operators.length?Xo(o,o.operators.
slice(0,Yo),e):null,Vl(o,e)])):null}function Vl(t,e){let n=t.operators.slice(Yo);return n.length?i("details",{},i("summa\
ry",{},`${T(n.length)} operators that differ less`),Xo(t,n,e)):null}function Xo(t,e,n){return i("table",{class:"rows"},i(
"caption",{class:"visually-hidden"},"Seconds a step of each operator, on both ranks"),i("thead",{},i("tr",{},i("th",{scope:"\
col"},"Operator, a step"),i("th",{scope:"col",class:"number"},D(t.slow_rank,n)),i("th",{scope:"col",class:"number"},D(t.
peer_rank,n)),i("th",{scope:"col",class:"number"},"Ratio"),i("th",{scope:"col",class:"number spare"},"Calls"))),i("tbody",
{},e.map(Xl)))}function Xl(t){let e=[t.slow_calls,t.peer_calls].map(T).join(" / ");return i("tr",{key:t.name},i("th",{scope:"\
row"},b(t.name)),i("td",{class:"number"},N(t.slow_s)),i("td",{class:"number"},N(t.peer_s)),i("td",{class:"number"},g(t.ratio)?
H(t.ratio):""),i("td",{class:"number spare"},e))}var Zo=5,Zl={confirmed:"bad",flapping:"bad",suspect:"watch",recovered:"good",ok:"good"};function Jo(t,e){return Dt(t,(n,o,s)=>Jl(
n,o,s,e))}function Jl(t,e,n,o){let s=t.verdicts||[],r=e?s:s.slice(0,Zo),a=t.verdicts_left_out||0;return[s.length?i("ul",
{class:"cards"},r.map(l=>We(l,t,o))):U("No rank, host or stage has had a slow verdict."),gt(s.length,Zo,e,n),a?i("p",{class:"\
nothing",key:"left"},`${T(a)} more lose less`):null,Vo(t,o),ei(t),oi(t)]}function We(t,e,n){let o=t.stands?Zl[t.state]||
"unknown":"good";return i("li",{key:t.subject_id,"data-tone":o,"data-state":t.state},i("span",{class:"badge"},t.state),i(
"div",{},i("p",{class:"card-title"},Ql(t,n),t.silenced?i("span",{class:"label"},"silenced"):null,t.pages?i("span",{class:"\
label strong"},e.run.mode==="observe"?"would page":"pages"):null),i("p",{dir:"auto"},F(P(t.sentence))),i("p",{class:"car\
d-foot"},ti(t,e).map(s=>i("span",{},b(s))))))}function Ql(t,e){return t.scope==="rank"&&g(t.rank)?[D(t.rank,e),t.node?["\
 on ",b(t.node)]:null]:t.scope==="host"?["host ",b(t.node)]:t.scope==="role"?["role ",b(t.role)]:"the whole run"}function ti(t,e){
let n=[t.cause_text||L(t.cause)];t.section&&n.push(`in ${t.section}`),g(t.slowdown)&&n.push(`${H(t.slowdown)} as long as\
 ${jt(t,"")}`),g(t.since_step)&&n.push(`since step ${T(t.since_step)}`),g(t.since_s)&&n.push(W(t.since_s,e.now_s));let o=t.
stands?t.gpu_seconds_lost_per_hour:null;return g(o)&&o>=1&&n.push(`${X(o,e.run.on_gpu)} per hour`),g(t.n_peers)&&t.n_peers>
0&&n.push(Z(t.n_peers,"peer")),g(t.confidence)&&t.stands&&n.push(`${z(t.confidence)} sure`),n}function ei(t){let e=[...t.
decisions||[]].reverse().slice(0,20);return e.length?i("div",{class:"decisions",key:"decisions"},i("h3",{},"Decisions"),
i("ul",{class:"lines"},e.map(n=>ni(n,t.now_s)))):null}function ni(t,e){let n=t.until_ns?` until ${W(t.until_ns/1e9,e)}`:
"",o=t.by?[" by ",b(t.by)]:null;return i("li",{class:t.is_in_force?"":"muted"},i("strong",{},t.action)," ",b(t.subject_id),
`${n}: `,b(t.reason),o,`, ${W(t.at_ns/1e9,e)}`,t.is_in_force?null:" (no longer in force)")}function oi(t){let e=t.maintenance||
[];return e.length?i("div",{class:"decisions",key:"maintenance"},i("h3",{},"Under maintenance: lost ranks there do not p\
age"),i("ul",{class:"lines"},e.map(n=>i("li",{key:n.node},i("strong",{},b(n.node)),` until ${W(n.until_s,t.now_s)}: `,b(
n.reason),n.by?[" by ",b(n.by)]:null)))):null}var si=1.1,ri=["auto","off"];function Qo(t,e){let n=null,o=null;function s(){e.select({rank:null})}function r(a){if(a===
o)return;o=a;let{activeElement:l}=document,u=t.contains(l);t.hidden=a===null,document.body.classList.toggle("has-side-pa\
nel",a!==null),a!==null?(u||(n=l),t.querySelector("h2").focus({preventScroll:!0}),t.scrollTop=0):n?.isConnected&&(u||l===
document.body)&&n.focus({preventScroll:!0})}return document.addEventListener("keydown",a=>{a.key==="Escape"&&o!==null&&!a.
defaultPrevented&&s()}),document.addEventListener("focusin",()=>{window.requestAnimationFrame(()=>{o!==null&&ai(document.
activeElement,t)&&s()})}),{update(a,l,u,c){let f=a?l.rank:null;f!==null&&E(t,li(a,l,u,{...e,close:s,isSaved:c})),r(f)}}}
function ai(t,e){if(!t||t===document.body||e.contains(t))return!1;let[n,o]=[t,e].map(s=>s.getBoundingClientRect());return n.
left>=o.left-1&&n.bottom>o.top}function li(t,e,n,o){let s=n!==null&&n.rank===e.rank;return[i("header",{class:"panel-head",
key:"head"},i("h2",{tabindex:"-1"},`Rank ${T(e.rank)}`),i("button",{type:"button",class:"icon-button","aria-label":"Clos\
e",onclick:o.close},"\u2715")),s?ci(t,n,o):U(ii(t,e.rank,o.isSaved))]}function ii(t,e,n){return t.ranks.rank.includes(e)?
n?"This report has no details of this rank; the collector's page does.":"No further data yet.":"Unknown rank."}function ci(t,e,n){
return[ui(e),hi(e,n),ki(e),yi(t,e,n),_i(e),e.commands?.length?i("section",{key:"commands"},i("h3",{},"To run"),e.commands.
map(o=>tt(o,e.page_url))):null]}function ui(t){let{mark:e,tone:n}=ft(t.state),o=Object.entries(t.parallel||{}).map(([r,a])=>`${r}\
 ${a}`),s=[["State",i("span",{"data-rank-state":n},i("span",{class:"state-mark","aria-hidden":"true"},e),` ${t.state??"u\
nknown"}`)],["Host",t.node?b(t.node):null],["Role",t.role?b(t.role):null],["Place",o.length?o.join(", "):null],["Step",g(
t.step)?T(t.step):null],["Heartbeat",g(t.heartbeat_age_s)?`${C(t.heartbeat_age_s)} ago`:null],["Progress",g(t.progress_age_s)?
`${C(t.progress_age_s)} ago`:null],["Open section",t.open_section?b(t.open_section):null],["GPU",fi(t.gpu)],["GPU scores",
t.gpu_age_s>0?`of kernels ${C(t.gpu_age_s)} before the end of the window`:null]].filter(([,r])=>r);return i("dl",{class:"\
pairs",key:"where"},s.map(([r,a])=>i("div",{key:r},i("dt",{},r),i("dd",{},a))))}function fi(t){return!t||!(t.model||t.uuid||
t.tier)?null:(t.model||t.uuid||ts(t)?[t.model,t.uuid,di(t),mi(t)]:["none reported"]).filter(Boolean).map(o=>i("div",{key:o},
b(o)))}function ts({tier:t}){return!!t&&t!=="off"}function di(t){if(!t.tier)return null;let e=t.reason&&!ri.includes(t.reason)?
`: ${L(t.reason)}`:"";return ts(t)?`timed by ${L(t.tier)}${e}`:`not timed${e}`}function mi({missing:t,lost:e}){let n=Object.
entries(e||{}).map(([s,r])=>`${L(s)}: ${T(r)}`);return[t?`times missing: ${T(t)}`:"",...n].filter(Boolean).join(", ")||null}
function hi(t,e){let n=t.sections||[];if(!n.length)return i("section",{key:"sections"},U("No scored window includes this\
 rank yet."));let o=Math.max(...n.flatMap(s=>[Le(s)??0,Ie(s)??0]));return i("section",{key:"sections"},i("h3",{},"Its se\
ctions next to its peers"),i("ul",{class:"section-rows"},n.map(s=>pi(s,o,t.history,e))),i("p",{class:"nothing"},"Upper b\
ar: own time of this rank per step. Lower bar: median of its role. Line: slowdown over the last windows."))}function pi(t,e,n,o){
let s=t.kind!=="wait",r=t.n_peers===0,a=s&&g(t.slowdown)&&t.slowdown>=si;return i("li",{key:t.name,"data-tone":a?"bad":!1},
i("div",{class:"section-head"},i("button",{type:"button",class:"text-link",title:"Show this section over time",onclick:()=>o.
select({section:t.name})},b(t.name)),i("small",{},` ${t.kind??""}`),r?i("small",{},rt):i("strong",{class:"number"},H(t.slowdown),
i("small",{}," its peers"))),i("div",{class:"section-body"},i("div",{class:"section-bars"},j(Le(t),e,a?"own":"neutral"),
i("span",{class:"number"},N(Le(t))),r?null:j(Ie(t),e,"others"),r?null:i("span",{class:"number"},N(Ie(t)))),r?null:zo(gi(
n,t.name),`Slowdown of ${t.name}`)),i("p",{class:"card-foot"},wi(t,r).map(l=>i("span",{},l))))}function Le({own_s:t,step_s:e}){
return t??e}function Ie({peers_own_s:t,peers_step_s:e}){return t??e}function gi(t,e){let n=t?.sections?.indexOf(e)??-1;return n===
-1?[]:t.slowdowns[n]}function wi(t,e){let o=[["score",e?null:t.relative_score],["to its own best",t.individual_score],["\
GPU",t.gpu_relative],["GPU to its own best",t.gpu_individual]].filter(([,s])=>g(s)).map(([s,r])=>`${s} ${r.toFixed(2)}`);
return g(t.step_s)&&g(t.own_s)&&t.step_s>t.own_s&&o.push(`duration ${N(t.step_s)} a step`),g(t.median_s)&&o.push(`median\
 run ${N(t.median_s)}`),o}function ki(t){if(!t.waits)return null;let{caused_s:e,suffered_s:n}=t.waits,o=Math.max(e??0,n??
0);return i("section",{key:"waits"},i("h3",{},"Waiting"),i("div",{class:"section-bars with-names"},i("span",{},"made oth\
ers wait"),j(e,o,"culprit"),i("span",{class:"number"},N(e)),i("span",{},"waited for others"),j(n,o,"victim"),i("span",{class:"\
number"},N(n))))}function yi(t,e,n){let o=e.verdicts||[];return i("section",{key:"verdicts"},i("h3",{},"Verdicts"),o.length?
i("ul",{class:"cards"},o.map((s,r)=>bi(s,r,t,n))):U("No slow verdict."))}function bi(t,e,n,o){let s=We({stands:t.state!==
"recovered"&&t.state!=="ok",...t},n,o);return{...s,props:{...s.props,key:e}}}function _i(t){let e=Object.entries(t.dropped||
{}).filter(([,o])=>o>0);if(!e.length)return null;let n=e.map(([o,s])=>`${o}: ${T(s)}`);return i("section",{key:"dropped"},
i("h3",{},"Lost before it arrived"),i("p",{},b(n.join(", "))))}var xi=nt(1.1);function es(t,e){let n=t?.ranks.indexOf(e)??-1;if(n<0)return"unknown";let{columns:o,bytes:s,ranks:r}=t,a=o.
length;for(;a>0&&s[(a-1)*r.length+n]>=xi;)a-=1;if(a===o.length)return"not slow now";let l=Vt(o[a]),u=o[a].first_step===null?
l:`step ${l}`;return a===0?`${u} or before`:u}var It={left:82,top:4,right:0,bottom:24},Pe={least:96,most:420,row:26},Si="No window has been scored yet: the first one \
closes after some steps.",Oi="No rank is flagged.";function ns(t,e){let n={order:"rank",shown:null,cache:Ni(),last:null,
draws:0},o=St(t,{part:"rank-time",label:"Slowdown of each rank in each window of steps",layout:It,marks:["flagged"],hasMinimap:!0,
tableCaption:"The slowest ranks of the newest window",tableColumn:"slow since",on:{words:f=>vi(n.shown,f),pick:f=>e.select(
{rank:n.shown.rankAt(f.row)}),changed:f=>Hi(t,o,l,n,f)}}),s=()=>n.last&&$i(o,n,...n.last),r=Ct("section",f=>e.select({section:f})),
a=Ct("order of ranks",f=>{n.order=f,s()});a.setOptions(oe,n.order);let l=yt("newest \u25B8","go to the newest window",()=>Wi(
o.heat));return o.tools.append(r.element,a.element,...ne(o.heat.actions,"ranks","time"),l),{update:(f,d,m)=>{n.last=[f,d,
m],r.setOptions(Mi(f),d.section??""),o.table.update(q(f).worst,h=>es(m,h)),s()},counts:()=>({draws:o.heat.it.draws,columnsBuilt:n.
cache.built()}),destroy:o.destroy}}function Mi(t){let e=(t.sections??[]).map(({name:n})=>({name:n,words:A(n)}));return[{
name:"",words:"all sections"},...e]}function $i(t,e,n,o,s){let r=o.rank??null,{known:a,flagged:l}=q(n),u=s?se(e.order,s,
a,l,r):[],c=u.map(w=>s.ranks[w]),f=Ae(t.heat.it),d=e.shown,m=d!==null&&d.order!==e.order;f&&!m&&e.order==="worst"&&Ei(d?.
keys,c)&&(u.splice(0,u.length,...d.keys.map(w=>s.ranks.indexOf(w))),c.splice(0,c.length,...d.keys)),e.shown={order:e.order,
keys:c,known:a,flagged:l,timeline:s,rankAt:w=>c[w],columns:s?.columns??[]};let h=s&&c.length?Ri(e,u,r):Q,p=Math.min(Pe.most,
Math.max(Pe.least,h.rows*Pe.row));t.setHeight(p+It.top+It.bottom),t.body.dataset.large=String(h.rows>100||h.columns>240),
t.stage.dataset.empty=h.rows===0?s?.columns.length?Oi:Si:"",t.heat.setGrid(h,m)}function Ei(t,e){if(!t||t.length!==e.length)
return!1;let n=new Set(t);return e.every(o=>n.has(o))}function Ri(t,e,n){let{keys:o,timeline:s,flagged:r,known:a}=t.shown,
l=t.cache.levelsOf(s,e,`${t.order}|${o.length}`,o),u=o.indexOf(n),c=s.columns.some(({first_step:h})=>h!==null),f=t.order===
"node",d=h=>a.get(o[h])?.node??"",m=f?o.map((h,p)=>p).filter(h=>h&&d(h)!==d(h-1)):[];return{...Q,rows:o.length,columns:s.
columns.length,levels:l,rowKeys:o,columnKeys:s.columns.map(({seq:h,at_s:p})=>`${h}@${p}`),rowName:h=>f&&d(h)?`${d(h)} \xB7 ${o[h]}`:
`rank ${o[h]}`,columnName:h=>Vt(s.columns[h]),columnLabelRoom:76,corner:c?"step":"time",...re(o,r),selectedRow:u<0?null:
u,rowBreaks:m,columnBreaks:Ai(s.columns),hasSlots:!0,isRanking:t.order==="worst",layoutFor:()=>({...It,left:f?120:It.left}),
mostCellHeight:26,mostCellWidth:90}}function Ai(t){let e=[];for(let n=1;n<t.length;n+=1)t[n].seq!==t[n-1].seq+1&&e.push(
n);return e}function Ni(){let[t,e,n,o]=[new Map,"",[],0],s=(a,l,u,c)=>{let{run_id:f,group:d,section:m,ranks:h}=a,p=[f,d,
m,h.length,u].join("|"),w=n.length===c.length&&c.every((y,k)=>y===n[k]);(p!==e||!w)&&(t=new Map),[e,n]=[p,c];let x=new Map;
return a.columns.forEach(({seq:y,at_s:k},O)=>{let M=`${y}@${k}`;x.set(M,t.get(M)??r(a,l,O))}),t=x,[...x.values()]},r=(a,l,u)=>{
o+=1;let c=u*a.ranks.length;return bt(Zt(a.bytes,l,c))};return{levelsOf:s,built:()=>o}}function vi(t,{row:e,column:n,byte:o,
ranks:s}){let r=t.rankAt(e),{node:a,state:l}=t.known.get(r)??{},u=t.columns[n],c=t.flagged.get(r)?.why,f=s===1&&Ci(t,n,r);
return[`${ot(r,a)}, ${Vn(u)}: ${f?rt:qn(o)}`,s>1?`the slowest of ${st(s)} in this line`:"",u.first_step===null?"":Xt(u.at_s),
c?`flagged: ${c}`:l??""]}function Ci({timeline:t,known:e},n,o){let{ranks:s,bytes:r}=t,a=n*s.length,l=s.map(u=>e.get(u)?.
role);return kt({role:l},r.subarray(a,a+s.length))(s.indexOf(o))}function Hi(t,e,n,o,s){let{bounds:r,view:a,grid:l}=s,u=xt(
a,r),{keys:c}=o.shown??{keys:[]},f={firstRank:c[u.firstRow]??"",lastRank:c[u.endRow-1]??"",columns:l.columns,order:o.order};
for(let[y,k]of Object.entries(f))t.dataset[y]!==String(k)&&(t.dataset[y]=k);let d=I(a,s.ratio),m=d.rows>1?` Each line sh\
ows the slowest of ${st(d.rows)}.`:"",h=`${wt(u.endRow-u.firstRow)} of ${st(c.length)}`,p=`${u.endColumn-u.firstColumn} \
of ${l.columns} window${l.columns===1?"":"s"}`,w=c.length?`${h}, ${p}.${m}`:"";e.note.textContent!==w&&(e.note.textContent=
w);let x=ee(a,r)||!Tt(a,r).across&&a.x>=0&&u.endColumn===l.columns;n.disabled!==x&&(n.disabled=x)}function Wi({it:t,show:e}){
e(G({...t.view,x:360*10},t.bounds))}var Ot={left:82,right:2,bottom:4,top:38,isSlanted:!1},Fe={top:14,longest:170,steepness:Math.SQRT1_2},Li=6.8,De={least:60,
most:520,row:26},Ii="No window has been scored yet: the first one closes after some steps.",Pi="all";function os(t,e){let n={
order:"rank",shown:null,last:null},o=St(t,{part:"sections",label:"Slowdown of each rank in each section of the newest wi\
ndow",layout:Ot,marks:["flagged"],hasMinimap:!0,tableCaption:"The slowest ranks of the newest window, all sections toget\
her",tableColumn:"slowest in",on:{words:l=>qi(n.shown,l),pick:({row:l,column:u})=>{let c=u===0?"":n.shown.columns[u].name;
e.select({rank:n.shown.keys[l],section:c})},changed:l=>zi(t,o,n,l)}}),s=()=>n.last&&Di(o,n,...n.last),r=Ct("order of ran\
ks",l=>{n.order=l,s()});return r.setOptions(oe,n.order),o.tools.append(r.element,...ne(o.heat.actions,"ranks")),{update:(l,u)=>{
n.last=[l,u],s(),o.table.update(q(l).worst,c=>Ui(n.shown,c))},destroy:o.destroy}}function Fi(t,e){let n=t.ranks.rank.length,
{overall:o,by_section:s}=t.slowdowns??{},r=(f,d,m)=>({name:f,words:A(f),kind:A(d),values:m,bytes:Ln(m,n),isAlone:kt(t.ranks,
m)}),a=t.sections??[],l=a.map(({name:f,kind:d},m)=>r(f,d,s?.[m]??[])),u=({name:f,kind:d})=>d!=="wait"||f===e,c=a.some(u)?
l.filter((f,d)=>u(a[d])):l;return[r(Pi,"all compute and data sections",o??[]),...c]}function Di(t,e,n,o){let s=e.shown,r=s?.
picture===n&&s.section===o.section&&s.order===e.order&&e.order!=="flagged";e.shown=r?s:Ki(n,e.order,o);let{keys:a,hasData:l}=e.
shown,u=l&&a.length?Bi(e.shown,o):Q,c=Math.min(De.most,Math.max(De.least,u.rows*De.row)),{top:f,bottom:d}=u.layoutFor?.(
t.stage.clientWidth/J())??Ot;t.setHeight(c+f+d),t.body.dataset.large=String(u.rows>100),t.stage.dataset.empty=u.rows===0?
l?"No rank is flagged.":Ii:"",t.heat.setGrid(u,s!==null&&s.order!==e.order)}function Ki(t,e,n){let o=Fi(t,n.section),{known:s,
flagged:r}=q(t),a={ranks:t.ranks.rank,columns:[{}],bytes:o[0].bytes},l=se(e,a,s,r,n.rank??null);return{picture:t,section:n.
section,order:e,places:l,columns:o,known:s,flagged:r,hasData:o.some(({bytes:u})=>u.some(Boolean)),keys:l.map(u=>a.ranks[u]),
levels:o.map(({bytes:u})=>bt(Zt(u,l)))}}function Bi({keys:t,places:e,columns:n,levels:o,flagged:s,known:r,order:a},l){let u=t.
indexOf(l.rank??null),c=l.section?n.findIndex(({name:d},m)=>m>0&&d===l.section):0,f=d=>r.get(t[d])?.node??"";return{...Q,
rows:t.length,columns:n.length,levels:o,rowKeys:t,columnKeys:n.map(({name:d},m)=>`${m}:${d}`),rowName:d=>a==="node"&&f(d)?
`${f(d)} \xB7 ${t[d]}`:`rank ${t[d]}`,columnName:d=>n[d].words,columnKind:d=>d===0?"own work":n[d].kind,exactAt:(d,m)=>ji(
n[m],e[d]),...re(t,s),selectedRow:u<0?null:u,selectedColumn:c<0?null:c,columnBreaks:[1],hasNamesOnTop:!0,layoutFor:d=>Gi(
n,d,a==="node"),mostCellWidth:240,mostCellHeight:26}}function ji({values:t,isAlone:e},n){return e(n)?null:t[n]}function Ui({
picture:t,columns:e},n){let o=t.ranks.rank.indexOf(n),s=e.slice(1).filter(({kind:r,isAlone:a})=>r!=="wait"&&!a(o)).map(({
words:r,values:a})=>({words:r,slowdown:a[o]??null})).filter(({slowdown:r})=>r!==null).sort((r,a)=>a.slowdown-r.slowdown);
return s.length?`${s[0].words}, ${dt(s[0].slowdown)}`:"unknown"}function Gi(t,e,n){let o=n?120:Ot.left,s=Math.max(8,...t.
map(({words:l})=>l.length))*Li+4;if((e-o-Ot.right)/t.length>=s)return{...Ot,left:o};let a=Math.min(Fe.longest,s)*Fe.steepness;
return{...Ot,left:o,top:Fe.top+a,right:a*.9,isSlanted:!0}}function qi({keys:t,places:e,columns:n,known:o,flagged:s},{row:r,
column:a,ranks:l}){let u=t[r],{words:c,kind:f,values:d,isAlone:m}=n[a],p=l===1&&m(e[r])?rt:dt(d[e[r]]),w=a===0?"all sect\
ions":c;return[`${ot(u,o.get(u)?.node)}, ${w}: ${p}`,a===0?"":`${f} section`,l>1?`the slowest of ${st(l)} in this line`:
"",s.has(u)?`flagged: ${s.get(u).why}`:""]}function zi(t,e,n,{view:o,bounds:s,ratio:r,grid:a}){let l=xt(o,s),u=a.rows?n.
shown.keys:[],c={firstRank:u[l.firstRow]??"",lastRank:u[l.endRow-1]??"",columns:a.columns};for(let[h,p]of Object.entries(
c))t.dataset[h]!==String(p)&&(t.dataset[h]=p);let{rows:f}=I(o,r),d=f>1?` Each line shows the slowest of ${st(f)}.`:"",m=u.
length?`${wt(l.endRow-l.firstRow)} of ${st(u.length)}.${d}`:"";e.note.textContent!==m&&(e.note.textContent=m)}function Be(t,e){let n=new URLSearchParams;for(let[s,r]of Object.entries(e))r!=null&&n.set(s,r);let o=n.toString();return o?
`${t}?${o}`:t}function ss(t){let e=new Map;return{forget:()=>e.clear(),async get(n,o,s=!0){let r=Be(n,o),a=e.get(r),l=await Yi(
t,r,a?.etag);if(l.status===304&&a)return{body:a.body,isNew:!1,problem:null};if(l.status===401)throw Object.assign(new Error(
"no token"),{needsLogin:!0});if(l.status>=400&&l.status<500)return{body:null,isNew:!0,problem:await Ke(l)};if(!l.ok)throw await Vi(
l);let u=await l.json(),c=l.headers.get("ETag");return e.delete(r),c&&s&&e.set(r,{etag:c,body:u}),e.size>24&&e.delete(e.
keys().next().value),{body:u,isNew:!0,problem:null}},async login(n){try{let o=await t.fetch("v1/login",{method:"POST",headers:{
"Content-Type":"application/json"},body:JSON.stringify({token:n}),cache:"no-store",credentials:"same-origin"});return o.
ok?null:await Ke(o)}catch{return"The collector does not respond."}}}}async function Yi(t,e,n){let o=new AbortController,
s=t.later(()=>o.abort(),2e4);try{return await t.fetch(e,{headers:n?{"If-None-Match":n}:{},cache:"no-store",credentials:"\
same-origin",signal:o.signal})}finally{t.clear(s)}}async function Vi(t){let e=await Ke(t);return Object.assign(new Error(
e),{told:e})}async function Ke(t){try{return String((await t.json()).error)}catch{return`The collector refuses this with\
 status ${t.status}.`}}function rs(){return{fetch:(t,e)=>window.fetch(t,e),openStream:t=>new EventSource(t),queueForStream:t=>Xi(navigator.locks,
t),now_ms:()=>Date.now(),later:(t,e)=>window.setTimeout(t,e),clear:t=>window.clearTimeout(t),random:()=>Math.random(),isHidden:()=>document.
hidden,onVisible:t=>document.addEventListener("visibilitychange",t)}}function Xi(t,e){let n=new AbortController,o=!1,s=()=>{},
r=new Promise(l=>{s=l}),a=()=>{if(!(o||n.signal.aborted))return o=!0,e(),r};for(let l=1;t&&l<=3;l+=1)t.request(`otel-str\
aggler stream ${l}`,{signal:n.signal},a).catch(()=>{});return()=>{n.abort(),s()}}function as(t,e,n){let o=t.openStream(e),s=!0,r=()=>{s=!1,o.close()},a=l=>{o.addEventListener(l,u=>{let c=Zi(u.data);s&&
c!==null&&n[l](c)})};return o.addEventListener("open",()=>s&&n.opened()),a("snapshot"),a("runs"),o.addEventListener("err\
or",()=>{s&&(r(),n.lost())}),{close:r}}function Zi(t){try{return JSON.parse(t)}catch{return null}}var Ji=3e3,Qi=6e4;function ls(t,e){let n=null,o=null,s=!1,r=!1,a=null,l=null,u=null;function c(){t.clear(u),o=as(t,n,{opened:()=>s=
!0,runs:e.runs,snapshot:e.snapshot,lost:f})}function f(){if(o=null,s)return e.lost();u=t.later(c,Qi)}function d(){l=t.later(
()=>{s||(e.ask(),d())},Ji)}function m(){r=!0,n!==null&&c()}function h(){o?.close(),o=n=null,s=!1,t.clear(l),t.clear(u)}return{
stop:h,listen(p){h(),n=p,r?c():a??=t.queueForStream(m),d()},rest(){h(),a?.(),a=null,r=!1}}}function cs(t){return{runs:null,picture:null,timeline:null,rank:null,problem:null,connection:{state:t,since_ms:Date.now(),
retry_ms:null,told:null,clock_s:0}}}function us(){let t=document.getElementById("straggler-data");return t?tc(JSON.parse(
t.textContent)):sc()}function tc(t){let e=cs("saved");return e.runs=t.runs,e.picture=t.run&&{...t.run,run:{...t.run.run,
groups:[t.run.run.group]}},{start(n,o){this.look=s=>{let r=(t.timelines||{})[mt(e.picture,s)];e.timeline=r?ge(r):null,e.
rank=(t.ranks||{})[String(s.rank)]||null,n({...e})},this.look(o)},look(){},retry(){},stop(){}}}var ec=15e3,nc=500,is=15e3,
oc=6;function sc(t=rs()){let e=ss(t),n=cs("connecting"),o=new Map,s={},r=()=>{},a=null,l=new Map,u=0,c=null,f=null,d=-1/0,
m=!1,h=!1,p=0,w=null,x=ls(t,{runs:K,snapshot:S=>{if(v(S.now_s),a===null)return K();if(S.snapshot===n.picture?.snapshot)return y();
Ue()},ask:()=>a===null?K():Ue(),lost:O}),y=()=>r({...n,connection:{...n.connection}});function k(S){n.connection.state!==
S&&Object.assign(n.connection,{state:S,since_ms:t.now_ms()})}function O(S){if(x.stop(),S?.needsLogin)return M();u+=1;let R=Math.
min(ec,nc*2**Math.min(u,8))*(.5+.5*t.random());k("reconnecting"),n.connection.told=S?.told??null,n.connection.retry_ms=t.
now_ms()+R,t.clear(c),c=t.later(lt,R),y()}function M(){t.clear(c),Object.assign(n.connection,{retry_ms:null,told:null}),
k("locked"),y()}function v(S){u=0,Object.assign(n.connection,{retry_ms:null,told:null}),typeof S=="number"&&(n.connection.
clock_s=S-t.now_ms()/1e3),k(ac(n.picture)?"ended":"live")}function at(){e.forget(),o.clear(),n.rank=null}function ht({collector:S,
started_at_s:$}){let R=l.get(S);return l.set(S,$),R!==void 0&&R!==$}async function lt(){t.clear(c);let S=u;try{await Mt(),
$t(),await pt()}catch($){u=S,O($)}}async function Mt(){let S=await e.get("v1/runs",{});if(S.body===null)return v(null);ht(
S.body)&&at(),n.runs=S.body,v(S.body.now_s)}function K(){Pt(Mt().then(()=>it()===a?y():je()))}function $t(){a=it(),t.isHidden()||
x.listen(Be("v1/events",{run:a}))}function it(){return s.run??n.runs?.runs[0]?.run_id??null}function je(){return $t(),pt()}
function Pt(S){S.catch(O)}function Ue(){if(f!==null||t.isHidden())return;let S=1e3*(n.picture?.next_look_s??1),$=Math.max(
0,d+S-t.now_ms());f=t.later(()=>{f=null,Pt(pt())},$)}async function pt(){if(m){h=!0;return}m=!0;try{do h=!1,await ps();while(h)}finally{
m=!1}}async function ps(){let S=p;d=t.now_ms();let $=it();if($===null)return n.picture=null,y();let R=await e.get("v1/ru\
n",{run:$,group:s.group});if(S!==p)return h=!0;if(n.problem=R.problem&&(gs($)?R.problem:rc($)),R.problem)return Object.assign(
n,{picture:null,timeline:null,rank:null}),y();ht(R.body)&&(at(),await Mt()),n.picture=R.body,v(R.isNew?R.body.now_s:null);
let V={run:R.body.run.run_id,group:R.body.run.group},{collector:et}=R.body,[ct,Et]=await Promise.all([ws(V,et),ks(V)]);return S!==
p?h=!0:(Object.assign(n,{timeline:ct,rank:Et}),y())}function gs(S){return n.runs?.runs.some(({run_id:$})=>$===S)??!1}async function ws(S,$){
let R={...S,section:mt(n.picture,s)},V=JSON.stringify([$,R]),et=o.get(V)??null,ct=n.picture.timeline?.last;if(ct==null)return null;
let Et=et?.last_seq??null;if(Et!==null&&Et>=ct)return et.timeline;let Ft=await e.get("v1/timeline",{...R,after:Et},!1);if(Ft.
problem||!Ft.body)return et?.timeline??null;let ze=ge(Ft.body),Ye=et?In(et.timeline,ze):ze;return o.delete(V),o.set(V,{timeline:Ye,
last_seq:Ft.body.last??ct}),o.size>oc&&o.delete(o.keys().next().value),Ye}async function ks(S){return s.rank===null||s.rank===
void 0?null:(await e.get("v1/rank",{...S,rank:s.rank})).body}function Ge(){return["reconnecting","locked"].includes(n.connection.
state)}function qe(){t.later(qe,is),!Ge()&&(t.isHidden()?ys():K())}function ys(){let S=()=>{let $=n.runs?.runs.find(({run_id:V})=>V===
it()),R=w;return w=`${$?.tone} ${$?.headline}`,w!==R};Pt(Mt().then(()=>S()&&pt()))}function bs(){if(w=null,t.isHidden())
return x.rest();if(Ge())return lt();$t(),Pt(pt())}return{start(S,$){return r=S,s=$,t.onVisible(bs),t.later(qe,is),lt()},
look(S){let $=s;s=S,p+=1;let{state:R,told:V}=n.connection;return R==="locked"?void 0:R==="reconnecting"?V?lt():void 0:(($.
run??null)===(S.run??null)?pt():je()).catch(O)},retry:()=>lt(),async login(S){let $=await e.login(S);return $===null&&await lt(),
$},stop(){x.rest(),t.clear(c),t.clear(f)}}}function rc(t){return`Waiting for the first data of run ${t}: this page shows\
 it as soon as it comes. If it ran before, this collector has not kept it.`}function ac(t){return t!==null&&(t.run.finished_at_s!==
null||!t.run.is_live)}var fs="otel-straggler-theme";function ds(t,e){let n=document.documentElement,o=window.matchMedia("(prefers-color-scheme\
: dark)"),s=lc(),r=()=>{let a=s||(o.matches?"dark":"light"),l=a==="dark"?"light":"dark";n.dataset.theme=a,t.textContent=
a==="dark"?"\u2600":"\u263E",t.setAttribute("aria-label",`Change to ${l} colours`),t.title=`Change to ${l} colours`,e(a)};
t.addEventListener("click",()=>{s=n.dataset.theme==="dark"?"light":"dark",ic(s),r()}),o.addEventListener("change",r),r()}
function lc(){try{let t=window.localStorage.getItem(fs);return t==="dark"||t==="light"?t:null}catch{return null}}function ic(t){
try{window.localStorage.setItem(fs,t)}catch{}}var ms={wide:8,narrow:4},cc="(max-width: 40rem)";function hs(t,e){return Dt(t,(n,o,s)=>uc(!pe(n)&&n.waits||[],o,s,e))}function uc(t,e,n,o){
if(!t.length)return U("No rank has waited for another yet.");let s=globalThis.matchMedia?.(cc).matches?ms.narrow:ms.wide,
r=e?t:t.slice(0,s),a=Math.max(...t.flatMap(l=>[l.caused_s??0,l.suffered_s??0]));return[i("table",{class:"rows waits"},i(
"caption",{class:"visually-hidden"},"Seconds waited since the start, by rank"),i("thead",{},i("tr",{},i("th",{scope:"col"},
"Rank"),i("th",{scope:"col",colspan:"2",class:"to-left"},i("span",{"aria-hidden":"true"},"\u25C2 "),"waited for others"),
i("th",{scope:"col",colspan:"2"},"made others wait",i("span",{"aria-hidden":"true"}," \u25B8")))),i("tbody",{},r.map(l=>fc(
l,a,o)))),gt(t.length,s,e,n)]}function fc(t,e,n){let o=(t.caused_s??0)>(t.suffered_s??0);return i("tr",{key:t.rank,"data\
-part-in-it":o?"culprit":"victim"},i("th",{scope:"row",class:"who"},D(t.rank,n),t.node?[" ",i("small",{},b(t.node))]:null),
i("td",{class:"number"},g(t.suffered_s)?N(t.suffered_s):""),i("td",{class:"half to-left"},j(t.suffered_s,e,"victim")),i(
"td",{class:"half"},j(t.caused_s,e,"culprit")),i("td",{class:"number to-start"},g(t.caused_s)?N(t.caused_s):""))}var dc=9,mc=5,hc=14;function pc(){let t=us(),e=null,n=document.documentElement.dataset.theme,o=!1,s=null,r=Ko(window,f=>{
let d=mt(e?.picture,f);d!==s&&ut(`Since when: ${d||"all sections"}`),s=d,c(),t.look(f)});s=mt(null,r.chosen());let a={select:r.
select,retry:t.retry,login:t.login},l=wc(a);function u(){o=!1,e&&yc(l,e,kc(e,r.chosen(),n))}function c(){if(document.hidden)
return u();o||(o=!0,window.requestAnimationFrame(u))}gc(document.querySelector(".top-bar")),ds(le("theme"),f=>{n=f,c()}),
t.start(f=>{e=f,c()},r.chosen())}function gc(t){let e=()=>document.documentElement.style.setProperty("--bar-height",`${t.
offsetHeight}px`);new ResizeObserver(e).observe(t),e()}function wc(t){let e=(n,o)=>n(le(o),t);return{alerts:e(sn,"alerts"),
announcer:Rn(),answer:e(Mn,"answer"),connection:An(le("connection"),le("notice"),t),figures:e(Nn,"figures"),firstSteps:e(
vn,"first-steps"),ledger:e(Hn,"ledger"),liveness:e(lo,"liveness"),login:e(io,"login"),matrix:e(Fo,"matrix"),picker:e(Uo,
"picker"),rank:e(Qo,"rank"),rankTime:e(ns,"rank-time"),sectionHeat:e(os,"sections"),verdicts:e(Jo,"verdicts"),waits:e(hs,
"waits")}}function le(t){return document.querySelector(`[data-part="${t}"]`)}function kc(t,e,n){let o=t.picture?.run;return{
run:o?.run_id??e.run,group:o?.group??e.group,section:mt(t.picture,e),rank:e.rank,theme:n}}function yc(t,e,n){let{picture:o,
runs:s,timeline:r,rank:a,connection:l,problem:u}=e;t.connection.update(o,n,l,u,s?.history_problem,s?.problems),t.login.update(
l),t.picker.update(o,n,s),t.firstSteps.update(o,n,s),bc(document.querySelector("[data-part=charts]"),o);let c=["answer",
"figures","ledger","waits","liveness","alerts","verdicts"];for(let f of c)t[f].update(o,n);o&&(t.matrix.update(o,n),t.sectionHeat.
update(o,n),t.rankTime.update(o,n,r)),t.rank.update(o,n,a,l.state==="saved"),t.announcer.update(o,l,u),(o||s||l.state===
"locked")&&(document.body.dataset.ready="")}function bc(t,e){if(t.hidden=!e,!e)return;t.dataset.sections=e.sections.length>
dc?"many":"few";let n=e.ranks.rank.length;t.dataset.ranks=n>hc?"many":n>mc?"some":"few"}pc();})();
