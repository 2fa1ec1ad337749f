(()=>{var Ye="http://www.w3.org/2000/svg",le=new WeakMap;function u(t,e,...n){return{tag:t,props:e||{},children:Ve(n)}}function $(t,...e){
let n=Ve(e),o=t.contains(document.activeElement)?document.activeElement:null;le.has(t)||t.replaceChildren(),ie(t,le.get(
t)||[],n,t.namespaceURI===Ye),le.set(t,n),o?.isConnected&&o!==document.activeElement&&o.focus({preventScroll:!0})}function E(t){return String(t).replace(hs,"\uFFFD")}var hs=/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
function Ve(t){let e=[];for(let n of t.flat(1/0))n==null||typeof n=="boolean"||e.push(typeof n=="object"?n:E(n));return e}
function ie(t,e,n,o){let s=Array.from(t.childNodes).slice(0,e.length),r=ms(e,n),a=new Set(r);e.forEach((i,c)=>{a.has(c)||
s[c].remove()});let l=t.firstChild;n.forEach((i,c)=>{let f=r[c],d=f===-1?ws(i,o):gs(s[f],e[f],i,o);d===l?l=l.nextSibling:
t.insertBefore(d,l)})}function ms(t,e){let n=new Map;t.forEach((s,r)=>{Rt(s)!==void 0&&n.set(Rt(s),r)});let o=new Set;return e.
map((s,r)=>{let a=Rt(s),l=a===void 0?r:n.get(a)??-1;return l===-1||l>=t.length||o.has(l)||!ps(t[l],s)?-1:(o.add(l),l)})}
function Rt(t){return typeof t=="object"&&t.props.key!==null?t.props.key:void 0}function ps(t,e){return typeof t!=typeof e?
!1:typeof e!="object"||t.tag===e.tag&&Rt(t)===Rt(e)}function gs(t,e,n,o){if(typeof n!="object")return e!==n&&(t.nodeValue=
n),t;let s=o||n.tag==="svg";return Xe(t,e.props,n.props),ie(t,e.children,n.children,s),t}function ws(t,e){if(typeof t!="\
object")return document.createTextNode(t);let n=e||t.tag==="svg",o=n?document.createElementNS(Ye,t.tag):document.createElement(
t.tag);return Xe(o,{},t.props),ie(o,[],t.children,n),o}function Xe(t,e,n){for(let o of Object.keys(e))o in n||ze(t,o,null,
e[o]);for(let o of Object.keys(n))e[o]!==n[o]&&ze(t,o,n[o],e[o])}function ze(t,e,n,o){if(e!=="key"){if(e==="style")return ks(
t,n||{},o||{});e.startsWith("on")?t[e.toLowerCase()]=n||null:e==="value"&&"value"in t?t.value!==n&&(t.value=n):n==null||
n===!1?t.removeAttribute(e):t.setAttribute(e,n===!0?"":E(n))}}function ks(t,e,n){for(let o of Object.keys(n))o in e||t.style.
removeProperty(o);for(let o of Object.keys(e))n[o]!==e[o]&&t.style.setProperty(o,String(e[o]))}var Ze=[[1,1,"s"],[.001,1e3,"ms"],[1e-6,1e6,"\xB5s"]];function O(t,e=3){return w(t)?Qe.format(Number.isInteger(t)?t:Number(
t.toPrecision(e))):"\u2013"}var Qe=new Intl.NumberFormat("en-US",{maximumSignificantDigits:21});function w(t){return typeof t==
"number"&&Number.isFinite(t)}function v(t){if(!w(t))return"\u2013";if(t===0)return"0 s";let e=Math.abs(t);if(e>=120)return D(
t);let[,n,o]=Ze.find(([s])=>e>=s*.9995)||Ze[2];return`${O(t*n)} ${o}`}function D(t){if(!w(t))return"\u2013";if(t<0)return`\
\u2212${D(-t)}`;if(t<10)return`${O(Math.round(t*10)/10)} s`;let e=Math.round(t);if(e<60)return`${e} s`;if(e<3600)return ce(
e,60,"min","s");let n=Math.round(t/60);return n<1440?ce(n,60,"h","min"):ce(Math.round(t/3600),24,"d","h")}function ce(t,e,n,o){
let s=t%e;return`${Qe.format(Math.floor(t/e))} ${n}${s?` ${s} ${o}`:""}`}function C(t){return w(t)?t<1.5?"1 s":D(Math.round(
t)):"never"}function Y(t,e){let n=e?"GPU":"rank";if(!w(t))return"\u2013";if(t<1)return`0 ${n}-s`;if(t<59.5)return`${O(t,
2)} ${n}-s`;if(t<3600)return`${O(t/60,2)} ${n}-min`;let o=t/3600;return`${o<9.95?o.toFixed(1):O(Math.round(o),2)} ${n}-h`}
function G(t,e=2){if(!w(t))return"\u2013";let n=Number((100*t).toPrecision(12));return`${O(Math.abs(n)>=100?Math.round(n):
n,e)} %`}function H(t){return w(t)?`${t>=100?O(Math.round(t)):t.toFixed(2)}\xD7`:"\u2013"}function W(t,e){if(!w(t))return"\
\u2013";let n=new Date(t*1e3),o=[n.getHours(),n.getMinutes(),n.getSeconds()].map(Je).join(":");return w(e)&&new Date(e*1e3).
toDateString()===n.toDateString()?o:`${[n.getFullYear(),n.getMonth()+1,n.getDate()].map(Je).join("-")} ${o}`}function Je(t){
return String(t).padStart(2,"0")}function V(t,e,n=`${e}s`){return`${O(t)} ${t===1?e:n}`}function I(t){return t?t[0].toUpperCase()+
t.slice(1):""}function P(t){return ys[t]||String(t??"\u2013").replaceAll("_"," ")}var ys={slow_gpu:"slow GPU or host",slow_host:"\
slow host or data loading",late_arrival:"late arrival",link:"link",sequence_imbalance:"sequence-length imbalance",uneven_work:"\
ranks take turns",uniform_slowdown:"uniform slowdown",unknown:"unknown cause",host:"host clock",events:"CUDA events",cupti:"\
kernel times (CUPTI)",collective:"host clock, without waiting in collectives",mixed:"host clock and GPU times",synchronised:"\
times that contain waiting"};function ut(t){let e=document.querySelector("[data-part=announcer]");e&&(e.textContent=E(t))}var bs=28;function B(t,e,n=""){let o=w(t)&&e>0?Math.min(1,Math.max(0,t/e)):0,s=u("span",{class:"bar-fill",style:{width:`${(100*
o).toFixed(2)}%`}});return u("span",{class:`bar ${n}`,"aria-hidden":"true"},s)}function _(t,e=""){return u("bdi",{class:`\
name ${e}`,title:t??!1},t??"")}function X(t){return String(t??"").split(/(\S*-\S*)/).map(n=>n.includes("-")&&n.length<=bs?
u("span",{class:"unbroken"},n):n)}function Z(t,e,n={}){return u("button",{type:"button",class:"rank-link",title:`Show ra\
nk ${t}`,onclick:()=>e.select({rank:t}),...n},`rank ${O(t)}`)}var _s=["127.0.0.1:9464","localhost:9464"],tn=/^otel-straggler (verdict|hang ask|doctor)\b/;
function xs(t,e,n=null){return n&&tn.test(t)?`${t} --collector ${n}`:!/^https?:$/.test(e?.protocol)||_s.includes(e.host)?
t:tn.test(t)?`${t} --collector ${e.origin}`:t}function tt(t,e=null){let n=xs(t,globalThis.location,e);return u("div",{class:"\
command",key:n},u("code",{dir:"ltr",tabindex:"0"},n),u("button",{type:"button",class:"copy","aria-label":`Copy: ${n}`,onclick:Ts},
"Copy"))}async function Ts(t){let e=t.currentTarget,n=e.previousElementSibling;try{await navigator.clipboard.writeText(n.
textContent),e.textContent="Copied",ut("Copied"),window.setTimeout(()=>e.textContent="Copy",1500)}catch{Ss(n),e.textContent=
"Press Ctrl+C",ut("The command is selected: press Control and C to copy it")}}function Ss(t){let e=document.createRange();
e.selectNodeContents(t);let n=window.getSelection();n.removeAllRanges(),n.addRange(e)}function K(t){return u("p",{class:"\
nothing"},t)}function Ft(t,e){let n=!1,o=null,s=()=>{$(t,o?e(o,n,()=>{n=!n,s()}):null)};return{update(r){o=r,s()}}}function gt(t,e,n,o){
return t<=e?null:u("button",{type:"button",class:"quiet",key:"more","aria-expanded":String(n),onclick:o},n?"Show fewer":
`Show all ${O(t)}`)}var Os=["critical","warning","info"],Ms={critical:"\u2715",warning:"!",info:"i"},$s=["alertname","severity","run_id","jo\
b_name","cluster","rank","node"],Es=4,en=3;function nn(t,e){let n=new Map,o=null,s=()=>$(t,o?Rs(o,e,n,r):null),r=(a,l)=>{
n.set(a,l),s()};return{update(a){o=a,s()}}}function Rs(t,e,n=new Map,o=()=>{}){let s=vs(t.alerts||[]),{is_live:r,received_at_s:a}=t.
run,l=r?t.now_s:a??t.now_s,i=t.run.mode==="observe"?u("p",{class:"nothing"},"The collector is in observe mode: firing al\
erts are listed here, and no notifications are sent."):null;return s.length?[r?i:u("p",{class:"nothing"},"No rank is rep\
orting: these fired when the run was last seen."),s.length>Es?u("ul",{class:"cards",key:"names"},As(s).map(([c,f],d)=>Ns(
c,f,n.get(c)??(d?"none":"few"),l,o,e))):u("ul",{class:"cards",key:"alerts"},s.map(c=>ln(c,l,e)))]:[K("No alerts are firi\
ng."),r?i:null]}function As(t){let e=new Map;for(let n of t)e.set(n.name,[...e.get(n.name)??[],n]);return[...e]}function Ns(t,e,n,o,s,r){
let[a]=e,l=n!=="none",i=n==="all"?e:e.slice(0,en),c=()=>s(t,n==="all"?"few":"all");return u("li",{key:`name ${t}`,"data-\
tone":on(a),"data-alert":t},sn(a),u("div",{},u("p",{class:"card-title"},u("button",{type:"button",class:"text-link","ari\
a-expanded":String(l),onclick:()=>s(t,l?"none":"few")},_(t)),u("span",{class:"label"},O(e.length),u("span",{class:"visua\
lly-hidden"}," of them")),u("small",{},` ${Dt(a)}, ${e.length>1?"newest ":""}for ${rn(a,o)}`)),l?u("ul",{class:"cards"},
i.map(f=>ln(f,o,r,e.length>1?"of some":"alone"))):u("p",{class:"one-line muted",dir:"auto"},X(I(an(a)))),l?gt(e.length,en,
n==="all",c):null))}function Dt(t){return t.labels.severity||"info"}function on(t){return Dt(t)==="critical"?"bad":"watc\
h"}function sn(t){let e=Dt(t);return u("span",{class:"tone-mark",title:e,"aria-hidden":"true"},Ms[e]||"!")}function rn(t,e){
return D(Math.max(0,Math.round(e-t.since_ns/1e9)))}function an({annotations:t}){return t.summary||t.description||""}function vs(t){
let e=o=>(Os.indexOf(o.labels.severity)+4)%4,n=({labels:o})=>"rank"in o?1:0;return[...t].sort((o,s)=>e(o)-e(s)||n(o)-n(s)||
s.since_ns-o.since_ns)}function ln(t,e,n,o=""){let{labels:s,annotations:r}=t,a=/^\d{1,9}$/.test(s.rank??"")?Number(s.rank):
null;return u("li",{key:JSON.stringify(s),"data-tone":on(t)},o?null:sn(t),u("div",{},o==="alone"?null:u("p",{class:"card\
-title"},o?null:_(t.name),u("small",{},` ${Dt(t)}, for ${rn(t,e)}`)),u("p",{dir:"auto"},X(I(an(t)))),r.summary&&r.description&&
r.description!==r.summary?u("p",{class:"muted",dir:"auto"},r.description):null,u("p",{class:"card-foot"},a===null?null:Z(
a,n),s.node?_(s.node):null,Cs(s).map(([l,i])=>u("span",{class:"label",key:l},_(`${l}=${i}`))),Hs(r.runbook_url))))}function Cs(t){
return Object.entries(t).filter(([e])=>!$s.includes(e)).slice(0,6)}function Hs(t){return/^https?:\/\//i.test(t??"")?u("a",
{href:t,rel:"noreferrer noopener",target:"_blank"},"Runbook"):null}var Bt=40,cn=.1;function hn(t){let{answer:e}=t;return e.kind==="hang"?Ls(t):Ws(e)||Bs(t)}function Ws(t){let e=t.peers;if(!e||
!w(e.own_s)||!w(e.peers_s))return null;let n=Math.max(e.own_s,e.peers_s),o=w(e.n_peers)&&e.n_peers>0?`${O(e.n_peers)} `:
"";return Ut([u("strong",{},H(e.slowdown)),` as long as ${Kt(t,o)}`,t.section?[" in ",_(t.section)]:null],jt(pn(t),e.own_s,
n,"own",v(e.own_s)),jt(Kt(t,o),e.peers_s,n,"others",v(e.peers_s)))}function Ls(t){let{answer:e,ranks:n}=t,o=Is(t).map(s=>n.
rank.indexOf(s)).filter(s=>s!==-1);return o.length?e.cause==="lost"?Ps(t,o):Fs(t,o):null}function Is({answer:t,hangs:e}){
return w(t.rank)?[t.rank]:(e??[]).flatMap(({culprits:n})=>n??[])}function Ps(t,e){let n=t.ranks.heartbeat_age_s,o=new Set(
e),s=Math.min(...e.map(l=>n[l]).filter(w)),r=Ds(n.filter((l,i)=>!o.has(i))),a=Math.max(...[s,r].filter(w));return Ut([u(
"strong",{},w(s)?C(s):"Never seen"),w(s)?" since the last heartbeat":null],jt(mn(t,e),s,a,"own",C(s)),w(r)&&jt("others, \
median",r,a,"others",C(r)))}function Fs(t,e){let{ranks:n}=t,o=new Set(e),s=n.rank.map((r,a)=>a).filter(r=>!o.has(r));return s.
length?Ut(null,dn(mn(t,e),fn(e.map(r=>un(n,r)))),dn("most of the others",fn(s.map(r=>un(n,r))))):null}function un(t,e){let n=t.
open_sections[t.open_section[e]],o=t.step[e],s=[w(o)?`step ${O(o)}`:"no step yet"];return t.states[t.state[e]]==="finish\
ed"?s.push("ended"):n&&s.push(`in ${n}`),s.join(", ")}function fn(t){let e=new Map;for(let n of t)e.set(n,(e.get(n)??0)+
1);return[...e].reduce((n,o)=>o[1]>n[1]?o:n)[0]}function dn(t,e){return u("div",{class:"peer-row reached"},u("span",{class:"\
peer-name"},_(I(t))),u("span",{},_(e)))}function mn({answer:t,ranks:e},n){return w(t.rank)?pn(t):n.length===1?`rank ${e.
rank[n[0]]}`:V(n.length,"rank")}function Kt({scope:t,cause:e},n){return t!=="run"&&t!=="role"?`its ${n}peers`:(e??"").endsWith(
"_imbalance")?"if all did the same work":"before"}function pn(t){return t.scope==="run"?"the run":w(t.rank)?`rank ${t.rank}`:
t.node?`host ${t.node}`:"this"}function Ut(t,...e){return u("figure",{class:"peers","data-field":"peers"},t&&u("figcapti\
on",{},t),e)}function jt(t,e,n,o,s){return u("div",{class:"peer-row"},u("span",{class:"peer-name"},_(I(t))),B(e,n,o),u("\
span",{class:"number"},s))}function Ds(t){let e=Float64Array.from(t.filter(w)).sort();return e.length?e[Math.floor((e.length-
1)/2)]:NaN}function Bs({ranks:t,slowdowns:e}){let n=e?.overall??[],o=Ks(n);if(!o||o.count<2)return null;let s=t.rank[o.slowest_place],
r=Math.max(...o.bins),a=`${V(o.count,"rank")} from ${H(o.low)} to ${H(o.high)}`;return Ut([u("strong",{},H(o.high)),` as\
 long as its peers: the slowest of all, rank ${O(s)}`],u("svg",{class:"spread",viewBox:`0 0 ${Bt} 20`,preserveAspectRatio:"\
none",role:"img","aria-label":a},o.bins.map((l,i)=>l>0&&u("rect",{key:i,x:i+.08,width:.84,y:(19.5-19*Math.sqrt(l/r)).toFixed(
2),height:(.5+19*Math.sqrt(l/r)).toFixed(2)}))),u("div",{class:"spread-axis","aria-hidden":"true"},u("span",{},H(o.from)),
u("span",{},"own time / that of the peers, all ranks"),u("span",{},H(o.to))))}function Ks(t){let[e,n,o,s]=[1/0,-1/0,0,-1];
if(t.forEach((i,c)=>{w(i)&&(o+=1,e=Math.min(e,i),i>n&&([n,s]=[i,c]))}),!o)return null;let r=Math.min(e,1-cn),a=Math.max(
n,1+cn),l=new Array(Bt).fill(0);for(let i of t)w(i)&&(l[Math.min(Bt-1,Math.floor((i-r)/(a-r)*Bt))]+=1);return{low:e,high:n,
count:o,from:r,to:a,bins:l,slowest_place:s}}var wn={good:"\u2713",watch:"!",bad:"\u2715",unknown:"?",ended:"\u25A0"},Gt={good:"Healthy",watch:"Keep an eye on it",bad:"\
Act",unknown:"Not known yet",ended:"Ended"};function kn(t,e){return{update(n){t.hidden=!n,n&&(t.dataset.tone=n.answer.tone,
t.dataset.kind=n.answer.kind,$(t,js(n,e)))}}}function js(t,e){let{answer:n}=t;return[u("div",{class:"answer-mark","aria-\
hidden":"true"},wn[n.tone]||"?"),u("div",{class:"answer-says"},u("p",{class:"eyebrow"},Gt[n.tone]||Gt.unknown),u("h1",{"\
data-field":"headline",dir:"auto"},X(n.headline)),u("p",{class:"sentence","data-field":"sentence",dir:"auto"},X(I(n.sentence))),
Us(t.run),Gs(t),qs(t)),u("div",{class:"answer-shows"},hn(t),Zs(n,t.page_url),w(n.rank)?u("button",{type:"button",class:"\
quiet",onclick:()=>e.select({rank:n.rank})},`All about rank ${n.rank}`):null)]}function At(t){return Gt[t]||Gt.unknown}function Nt(t){
return wn[t]||"?"}function Us(t){let e=t?.goodput?.sentence;return e?u("p",{class:"sentence","data-field":"goodput",dir:"\
auto"},X(e)):null}function Gs({run:t,now_s:e}){let n=t?.launches,o=n?.attempts.at(-1);if(!o||typeof n.text!="string")return null;
let s=w(o.started_at_s)?` ${D(Math.max(0,Math.round(e-o.started_at_s)))} ago`:"",r=[`Attempt ${o.attempt}; restarted${s}`,
n.text].filter(Boolean).join(" ");return u("p",{class:"sentence","data-field":"launches",dir:"auto"},X(r))}function qs(t){
let{answer:e}=t,n=[["Why","cause",e.cause_text||(e.cause?P(e.cause):null)],["Where","section",e.section],["Since","since",
Ys(t)],[yn(t)?"Cost":"Costs","cost",Vs(t)],["Evidence","evidence",Xs(e)]].filter(([,,o])=>o);return n.length?u("dl",{class:"\
facts"},n.map(zs)):null}function zs([t,e,n]){return u("div",{key:e},u("dt",{},t),u("dd",{"data-field":e},_(n)))}function Ys(t){
let{since_step:e,since_s:n}=t.answer,o=[];if(w(e)&&o.push(`step ${O(e)}`),w(n)){let s=D(Math.max(0,Math.round(t.now_s-n)));
o.push(`${s} ago (${W(n,t.now_s)})`)}return o.join(", ")}function yn(t){return t.answer.kind==="ended"}function Vs(t){let{
answer:{cost:e},run:n}=t;if(!e)return"";let o=e.gpu_seconds_lost_per_hour,s=[];return w(o)&&o>=1&&s.push(`${Y(o,n.on_gpu)}\
 per hour`),w(e.gpu_seconds_lost)&&e.gpu_seconds_lost>=1&&s.push(`${Y(e.gpu_seconds_lost,n.on_gpu)} ${yn(t)?"in all":"so\
 far"}`),s.join(", ")}function Xs(t){if(!t.evidence)return"";let e=[P(t.evidence)];return w(t.confidence)&&e.push(`${G(t.
confidence)} sure`),t.is_localised===!1&&e.push("cannot tell culprit from victims"),e.join(", ")}function Zs(t,e){let n=t.
advice||[],o=t.commands||[];return!n.length&&!o.length?null:u("div",{class:"advice"},u("h2",{},"What to do"),u("ul",{"da\
ta-field":"advice"},n.map(s=>u("li",{dir:"auto"},I(s)))),o.filter(s=>!gn(s)).map(s=>tt(s,e)),Js(o.filter(gn),e))}function gn(t){
return/ verdict dismiss /.test(t)}function Js(t,e){return t.length?u("details",{class:"dismissal",key:"dismissal"},u("su\
mmary",{},"Known, or not a problem?"),u("p",{class:"nothing"},"This ends its notifications. Write your reason instead of\
 WHY."),t.map(n=>tt(n,e))):null}var Qs=1e4;function _n(){let t=null,e=null,n=!1,o=-1/0,s=null,r=a=>{o=Date.now(),ut(a)};return{update(a,l,i){let c=l.state===
"reconnecting",f=tr(a,c,i);if(document.title=E(er(a,c)),document.documentElement.dataset.tone=c?"unknown":a?.answer.tone??
"unknown",f===t)return;let d=t===null,h=e!==bn(a)&&a!==null,m=n&&!c?`The collector responds again. ${f}`:f;if(t=f,n=c,a&&
(e=bn(a)),d)return;window.clearTimeout(s);let p=h?0:o+Qs-Date.now();s=window.setTimeout(()=>r(m),Math.max(0,p))}}}function tr(t,e,n){
return e?"The collector does not respond. The data on this page is getting stale.":n||(t?`${At(t.answer.tone)}: ${t.answer.
headline}`:"")}function bn(t){return t?JSON.stringify([t.run.run_id,t.run.group]):null}function er(t,e=!1){if(!t)return"\
otel-straggler";let{answer:n,run:o}=t;return e?`${Nt("unknown")} The collector does not respond \xB7 ${o.job||o.run_id}`:
`${Nt(n.tone)} ${n.headline} \xB7 ${o.job||o.run_id}`}var nr={ok:"finished",failed:"failed",cancelled:"was cancelled",preempted:"was preempted"},or={live:"\u25CF",ended:"\u25A0",
saved:"\u25A3",reconnecting:"\u25CB",connecting:"\u25CB",locked:"\u25CB"};function xn(t,e,n){let o=null,s=()=>{if(!o)return;
let{picture:r,connection:a,problem:l,historyProblem:i,problems:c}=o,f=sr(r,a,l,Date.now(),i,c);t.dataset.state=o.connection.
state,t.dataset.old=String(f.isOld),$(t,u("span",{class:"dot","aria-hidden":"true"},or[o.connection.state]),u("span",{class:"\
connection-state"},f.state),f.age?u("span",{class:"connection-age number"},f.age):null),e.hidden=!f.notice,e.dataset.kind=
f.kind||"",$(e,f.notice?ur(f,n):null);let d=o.connection.state==="reconnecting"||f.kind==="awaited";document.body.classList.
toggle("is-stale",d)};return window.setInterval(s,1e3),{update(r,a,l,i,c=null,f=[]){o={picture:r,connection:l,problem:i,
historyProblem:c,problems:f},s()}}}function sr(t,e,n,o,s=null,r=[]){let a=o/1e3+e.clock_s,l=t?.run.received_at_s,i=w(l)?
Math.max(0,a-l):null,c={state:P(e.state),age:"",isOld:!1,notice:null};if(e.state==="saved")return ar(t,c);if(e.state==="\
reconnecting")return lr(t,e,o,i,c);if(n)return{...c,notice:n,kind:"problem"};if(s){let d=`Past runs cannot be shown: ${s}`;
Object.assign(c,{notice:d,kind:"history-problem"})}if(r.length){let d=[c.notice,...r.map(rr)].filter(Boolean).join(" ");
Object.assign(c,{notice:d,kind:"collector-problem"})}if(!t)return c;if(e.state==="ended")return ir(t,c);let f=i!==null&&
i>30;return{...c,age:`data ${C(i)} ago`,isOld:f}}function rr(t){return`${t[0].toUpperCase()}${t.slice(1)}.`}function ar(t,e){
if(!t)return e;let n=W(t.now_s,null);return{...e,state:"saved",age:n,notice:`A report of ${n}. It no longer changes.`,kind:"\
saved"}}function lr(t,e,n,o,s){let r=Math.max(0,Math.ceil(((e.retry_ms??n)-n)/1e3)),a=C((n-e.since_ms)/1e3),l=t&&o!==null?
` The data is ${C(o)} old.`:"",i=r>0?`Trying again in ${r} s.`:"Trying again now.";return{...s,age:o===null?"":`data ${C(
o)} old`,isOld:!0,notice:e.told?`The collector cannot show this: ${e.told}${l} ${i}`:`The collector has not responded fo\
r ${a}.${l} ${i}`,kind:"away",canRetry:!0}}function ir(t,e){let{run:n}=t;if(w(n.awaited_since_s))return cr(t,e);let o=W(
n.received_at_s,t.now_s);if(!n.is_live){let r=`From the collector's history: no rank is reporting. Last seen ${o}.`;return{
...e,state:"history",age:o,notice:r,kind:"history"}}let s=W(n.finished_at_s,t.now_s);return{...e,state:"ended",age:s,notice:`\
This run ${nr[n.outcome]??"ended"} at ${s}.`,kind:"ended"}}function cr({run:t,now_s:e},n){let o=W(t.seen_at_s,e),s=`This\
 is the run as of ${o}. The collector was restarted at ${W(t.awaited_since_s,e)}, and has received nothing from this run\
 since.`;return{...n,state:"last view",age:o,isOld:!0,notice:s,kind:"awaited"}}function ur(t,e){return[u("span",{dir:"au\
to"},t.notice),t.canRetry?u("button",{type:"button",class:"quiet",onclick:e.retry},"Try now"):null,t.kind==="problem"?u(
"button",{type:"button",class:"quiet",onclick:()=>e.select({run:null,group:null,rank:null,section:null})},"Show the firs\
t run"):null]}var fr=.03,dr=30,hr=.1,mr=.048;function Tn(t){return{update(e){t.hidden=!e,e&&$(t,pr(e).map(gr))}}}function pr(t){let{run:e}=t,
n=t.answer.kind==="ended";return[wr(e),kr(e,n),br(t,n),_r(t,n),xr(t),Or(e)]}function gr({title:t,large:e,of:n,unit:o,small:s,
tone:r}){let a=n?`of ${n}`:o;return u("div",{class:"figure",key:t,"data-tone":r||!1},u("dt",{},t),u("dd",{class:"figure-\
large"},e,a&&u("span",{class:"figure-of"},` ${a}`)),u("dd",{class:"figure-small"},s||" "))}function wr(t){let e=t.slowest_step_s,
n=t.world_size===1?"":" of the slowest rank",o=w(e)?`of it ${v(e)} own work${n}`:"";return{title:"Step time",large:v(t.step_s),
small:o}}function kr(t,e){let n=w(t.waste)&&t.waste>=1,o=e?"took":"takes",s=w(t.slowdown)?`${o} ${H(t.slowdown)} as long\
 as it could`:"";return{title:"Time lost",large:G(t.waste),small:n?"no progress":s,tone:w(t.waste)?yr(t.waste):null}}function yr(t){
return t>=hr?"bad":t>=mr?"watch":"good"}function br({run:t,heat:e},n){let o=Math.round(fr*(e?.cells?.length??0))<=1,[s,r]=[
[t.m_w,`the worst worker${o?"":"s"}`],[t.m_s,"the last stage"]].reduce((c,f)=>(f[0]??0)>(c[0]??0)?f:c),a=w(s)&&s>=.5?`${G(
Math.min(1,s))} of it by ${r}`:"",[l,i]=Y(t.gpu_seconds_lost,t.on_gpu).split(" ");return{title:n?"Lost in all":"Lost so \
far",large:l,unit:i,small:a}}function _r({run:t,ranks:e},n){let o=n?-1:e.states.indexOf("lost"),s=o===-1?0:e.state.filter(
i=>i===o).length,r=s?Math.min(t.ranks_reporting,e.rank.length-s):t.ranks_reporting,a=w(t.world_size)?Math.max(0,t.world_size-
r-s):0,l=[s&&`${O(s)} lost`,a&&`${O(a)} missing`];return{title:n?"Ranks that reported":"Ranks reporting",large:O(r),of:w(
t.world_size)?O(t.world_size):null,small:l.filter(Boolean).join(", ")||"all of them",tone:s||a?"bad":null}}function xr(t){
let{run:e}=t,n=w(e.finished_at_s)||t.answer.kind==="ended",o=n?e.finished_at_s??e.received_at_s??t.now_s:t.now_s,s=t.answer.
kind==="hang"?t.answer.since_s:e.began_at_s,r=[n&&e.state==="training"?"last seen training":Sr(e)];return w(s)&&!w(e.awaited_since_s)&&
(r[0]+=`${Tr(t,n,s)} ${D(Math.max(0,o-s))}`),w(e.attempt)&&e.attempt>0&&r.push(`attempt ${e.attempt}`),{title:"Step",large:O(
e.step),small:r.join(", ")}}function Tr({run:t,started_at_s:e},n,o){return n?" after":t.state!=="unknown"&&w(e)&&o===t.began_at_s&&
o-e<dr?", monitored for":" for"}function Sr(t){return w(t.awaited_since_s)?"before the collector was restarted":t.state===
"unknown"?"without heartbeats":P(t.state)}function Or(t){let e=t.resolvable_slowdown,n=(t.groups??[]).length>1?" of this\
 group":"";return{title:"Detection limit",large:w(e)?G(e-1):G(null),small:`slowdown of one rank${n}${t.time_basis?`, by ${P(
t.time_basis)}`:""}`}}function Sn(t){return{update(e,n,o){let s=o!==null&&o.runs.length===0;t.hidden=!s,s&&$(t,Mr(window.location.hostname||"1\
27.0.0.1",window.location.protocol))}}}function Mr(t,e="http:"){let n=t.includes(":")&&!t.startsWith("[")?`[${t}]`:t,o=`${e}\
//${n}:4318`;return[u("p",{class:"eyebrow"},"No runs yet"),u("h1",{},"The collector is running, but no training run has \
reported"),u("p",{},"Add four lines around the training loop and start it. The page updates automatically."),u("pre",{tabindex:"\
0","aria-label":"Four lines of Python around a loop"},u("code",{},$r(o))),u("p",{},"Or change nothing, and start it with\
 this instead of torchrun:"),tt(`OTEL_STRAGGLER_ENDPOINT=${o} otel-straggler run --nproc-per-node 4 train.py`),u("p",{},
"Ranks send to ",u("code",{},o)," unless the collector was started with another address. It listens on this machine only\
 unless configured otherwise (",u("code",{},"--otlp-http 0.0.0.0:4318"),", with grants or ",u("code",{},"--insecure"),")\
."),u("h2",{},"Nothing arrives?"),u("p",{},"Run this in the environment of the job:"),tt("otel-straggler doctor"),u("h2",
{},"Just trying it out?"),u("p",{},"This sends the telemetry of eight ranks, one of them slow, in real time:"),tt(`otel-\
straggler simulate --steps 2000 --speed 1 --send ${o}`)]}function $r(t){return["import otel_straggler as ots","",`ots.co\
nfigure(endpoint="${t}")  # after init_process_group, if there is one`,"ots.watch(model, optimizer, dataloader)","for ba\
tch in dataloader:","    ...  # as it is: forward, backward, optimizer.step()","ots.shutdown()"].join(`
`)}var On=8;function Mn(t,e){return{update(n){$(t,n?Er(n.ledger||[],e,ue(n)):null)}}}function ue({ranks:t,slowdowns:e}){return((e?.
overall??[]).filter(w).length||t.rank.length)===1}function Er(t,e,n=!1){let o=t.filter(a=>w(a.exposed_s));if(!o.length)return K(
"No step has been analyzed yet.");let s=o.reduce((a,l)=>a+Math.max(0,l.exposed_s),0),r=Math.max(...o.map(a=>Math.max(a.exposed_s,
a.typical_s??0)));return[Rr(o,s),u("table",{class:"rows"},u("caption",{class:"visually-hidden"},"Seconds of the step by \
section"),u("thead",{},u("tr",{},u("th",{scope:"col"},"Section"),u("th",{scope:"col",class:"wide"},"Adds to the step"),u(
"th",{scope:"col",class:"number"},"Exposed"),n?null:u("th",{scope:"col",class:"number spare"},"Typical rank"),n?null:u("\
th",{scope:"col"},"Last one"))),u("tbody",{},o.map((a,l)=>Ar(a,l,s,r,n,e))))]}function Rr(t,e){return u("div",{class:"st\
ack",role:"img","aria-label":`A step of ${v(e)}; the table below lists its parts`},t.map((n,o)=>u("span",{key:n.section,
class:`shade shade-${o%On}`,title:`${n.section}: ${v(n.exposed_s)}`,style:{"flex-grow":e>0?Math.max(0,n.exposed_s/e).toFixed(
5):1}},n.exposed_s/e>.12?_(n.section):null)))}function Ar(t,e,n,o,s,r){return u("tr",{key:t.section},u("th",{scope:"row"},
u("span",{class:`swatch shade-${e%On}`,"aria-hidden":"true"}),u("button",{type:"button",class:"text-link",title:"Show th\
is section over time",onclick:()=>r.select({section:t.section})},_(t.section))),u("td",{class:"wide"},B(t.exposed_s,o,"n\
eutral")),u("td",{class:"number"},v(t.exposed_s),u("small",{},` ${G(n>0?t.exposed_s/n:null)}`)),s?null:u("td",{class:"nu\
mber spare"},v(t.typical_s)),s?null:u("td",{},w(t.leader_rank)?Z(t.leader_rank,r):u("span",{class:"muted"},"varies")))}function nt(t){if(!Number.isFinite(t)||t<=0)return 0;let e=Math.round(128+64*Math.log2(t));return Math.min(255,Math.max(
1,e))}function En(t,e=t.length){let n=new Uint8Array(e);for(let o=0;o<e;o+=1)n[o]=nt(t[o]);return n}function qt(t){return t===
0?null:2**((t-128)/64)}function fe(t){if(t.encoding!=="uint8-log2")throw new Error(`timeline: encoding is ${t.encoding};\
 expected uint8-log2. Reload the page.`);let e=Nr(t.values),n=t.ranks.length*t.columns.length;if(e.length!==n)throw new Error(
`timeline: ${e.length} bytes for ${t.ranks.length} ranks in ${t.columns.length} columns; expected ${n}. Reload the page.`);
let{run_id:o,group:s,section:r,first:a,last:l,ranks:i,columns:c}=t;return{run_id:o,group:s,section:r??"",first:a,last:l,
ranks:i,columns:c,bytes:e}}function Nr(t){if(Uint8Array.fromBase64)return Uint8Array.fromBase64(t??"");let e=atob(t??""),
n=new Uint8Array(e.length);for(let o=0;o<e.length;o+=1)n[o]=e.charCodeAt(o);return n}function Rn(t,e,n=360){if(!t||vr(t,
e)||Cr(t,e))return e;if(e.columns.length===0)return t;let o=Wr(t.ranks,e.ranks),s=Ir(t,e,n),r=new Uint8Array(o.length*s.
length),a=new Map([t,e].map(m=>[m,Lr(o,m.ranks)]));s.forEach(({from:m,index:p},g)=>{Pr(m,p,r,g*o.length,a.get(m))});let l=s.
map(({from:m,index:p})=>m.columns[p]),{run_id:i,group:c,section:f}=e,[d,h]=[l[0].seq,l[l.length-1].seq];return{run_id:i,
group:c,section:f,first:d,last:h,ranks:o,columns:l,bytes:r}}function vr(t,e){return["run_id","group","section"].some(n=>t[n]!==
e[n])}function Cr(t,e){let[n,o]=[$n(t),$n(e)];if(!n||!o)return!1;if(o.seq<=n.seq&&o.at_s>n.at_s)return!0;let s=new Map(t.
columns.map(r=>[r.seq,r]));return e.columns.some(r=>{let a=s.get(r.seq);return a!==void 0&&!Hr(a,r)})}function Hr(t,e){return t.
seq===e.seq&&t.at_s===e.at_s&&t.first_step===e.first_step}function $n(t){return t.columns[t.columns.length-1]}function Wr(t,e){
return t.length===e.length&&t.every((n,o)=>n===e[o])?t:[...new Set([...t,...e])].sort((n,o)=>n-o)}function Lr(t,e){if(t.
length===e.length)return null;let n=new Map(t.map((o,s)=>[o,s]));return Int32Array.from(e,o=>n.get(o))}function Ir(t,e,n){
let o=new Map;for(let r of[t,e])r.columns.forEach((a,l)=>o.set(a.seq,{from:r,index:l}));return[...o.keys()].sort((r,a)=>r-
a).slice(-n).map(r=>o.get(r))}function Pr(t,e,n,o,s){let r=t.ranks.length,a=t.bytes.subarray(e*r,(e+1)*r);if(s===null)n.
set(a,o);else for(let l=0;l<r;l+=1)n[o+s[l]]=a[l]}var vt=2,Fr=.7,Dr=.05,de={fast:["#c9dff2","#78b0de","#3179bb","#124384"],even:"#f6f6f4",slow:["#fdd8ae","#f79c47","#da5a\
0e","#852803"]};function Cn(t){let e=getComputedStyle(t),n=(o,s)=>e.getPropertyValue(o).trim()||s;return{fast:n("--heat-\
fast",de.fast.join(" ")).split(/\s+/),even:n("--heat-even",de.even),slow:n("--heat-slow",de.slow.join(" ")).split(/\s+/),
ink:n("--chart-ink","#1c2127"),quiet:n("--chart-quiet","#57606a"),line:n("--chart-line","#d0d7de"),surface:n("--chart-su\
rface","#ffffff"),empty:n("--chart-empty","#e9ecef"),hatch:n("--chart-hatch","#b6bec7"),flag:n("--chart-flag","#b3261e"),
accent:n("--chart-accent","#0b57d0"),font:e.fontFamily||"sans-serif"}}function he(t){let e=nt(vt)-128,n=Math.min(1,Math.
abs(t-128)/e),o=n**Fr*-Math.expm1(-((n/Dr)**2));return t<128?-o:o}function me(t,e){let n=[t.even,...e<0?t.fast:t.slow],o=Math.
abs(e)*(n.length-1),s=Math.min(n.length-2,Math.floor(o)),[r,a]=[vn(n[s]),vn(n[s+1])],l=o-s;return Ur(r.map((i,c)=>i+l*(a[c]-
i)))}function Hn(t){let e=new Uint8ClampedArray(1024);for(let n=1;n<256;n+=1)e.set([...me(t,he(n)),255],n*4);return new Uint32Array(
e.buffer)}function Wn(t){return Array.from({length:256},(e,n)=>{let o=me(t,he(n||128));return{fill:`rgb(${o.map(Math.round).
join(" ")})`,ink:Br(o)}})}function Br(t){return An(t,[0,0,0])>=An(t,[255,255,255])?"#000000":"#ffffff"}function An(t,e){
let[n,o]=[Nn(t),Nn(e)].sort((s,r)=>r-s);return(n+.05)/(o+.05)}function Nn(t){let[e,n,o]=t.map(In);return .2126*e+.7152*n+
.0722*o}function Ln(t){return`linear-gradient(to right, ${Array.from({length:33},(n,o)=>{let s=nt(vt**(o/16-1));return`r\
gb(${me(t,he(s)).map(Math.round).join(" ")}) ${o/32*100}%`}).join(", ")})`}function Kr(t){let e=/^#([0-9a-f]{6})$/i.exec(
t);if(!e)throw new Error(`colour ${t}: expected #rrggbb. Look at charts.css.`);return[16,8,0].map(n=>parseInt(e[1],16)>>
n&255)}function In(t){let e=t/255;return e<=.04045?e/12.92:((e+.055)/1.055)**2.4}function jr(t){let e=Math.min(1,Math.max(
0,t));return 255*(e<=.0031308?e*12.92:1.055*e**(1/2.4)-.055)}function vn(t){let[e,n,o]=Kr(t).map(In),s=Math.cbrt(.4122214708*
e+.5363325363*n+.0514459929*o),r=Math.cbrt(.2119034982*e+.6806995451*n+.1073969566*o),a=Math.cbrt(.0883024619*e+.2817188376*
n+.6299787005*o);return[.2104542553*s+.793617785*r-.0040720468*a,1.9779984951*s-2.428592205*r+.4505937099*a,.0259040371*
s+.7827717662*r-.808675766*a]}function Ur([t,e,n]){let o=(t+.3963377774*e+.2158037573*n)**3,s=(t-.1055613458*e-.0638541728*
n)**3,r=(t-.0894841775*e-1.291485548*n)**3;return[4.0767416621*o-3.3077115913*s+.2309699292*r,-1.2684380046*o+2.6097574011*
s-.3413193965*r,-.0041960863*o-.7034186147*s+1.707614701*r].map(jr)}function ot(t,e){return e?`rank ${t} on ${e}`:`rank ${t}`}function Pn(t){let e=qt(t);if(e===null)return"no data";let n=`${e.
toFixed(2)}x its peers`;return t===255?`${n} or more`:t===1?`${n} or less`:n}function Fn(t){return t==null?"no data":`al\
one makes the step ${t.toFixed(2)}x as long`}function ft(t){return t==null?"no data":`${t.toFixed(2)}x its peers`}function Dn(t){
return t==null?"":t>=9.95?t.toFixed(0):t.toFixed(t>=3.95?1:2)}function Bn(t){let{first_step:e,last_step:n,at_s:o}=t;return e===
null?`until ${Vt(o)}`:e===n?`step ${e}`:`steps ${e}\u2013${n}`}function Yt({first_step:t,at_s:e}){return t===null?Vt(e):
wt(t)}function Vt(t){if(t==null)return"";let e=new Date(t*1e3);return[e.getHours(),e.getMinutes(),e.getSeconds()].map(n=>String(
n).padStart(2,"0")).join(":")}function wt(t){return String(t).replace(/\B(?=(\d{3})+$)/g,",")}function st(t){return`${wt(
t)} ${t===1?"rank":"ranks"}`}var rt="no other rank to compare with";function kt(t,e){let n=new Map;for(let o=0;o<e.length;o+=1){if(!(e[o]>0))continue;
let s=t.role?.[o];n.set(s,(n.get(s)??0)+1)}return o=>e[o]>0&&n.get(t.role?.[o])===1}function b(t,e,n={},...o){let s=document.createElement(t);e&&(s.className=e);for(let[r,a]of Object.entries(n))s.setAttribute(
r,a);return s.append(...o.map(r=>typeof r=="string"?E(r):r)),s}function J(){return parseFloat(getComputedStyle(document.
documentElement).fontSize)/16||1}function yt(t,e,n){let o=b("button","chart-button",{type:"button","aria-label":e,title:e},
t);return o.addEventListener("click",n),o}function Ct(t,e){let n=b("select","chart-select",{"aria-label":t});n.addEventListener(
"change",()=>e(n.value));let o="";return{element:n,setOptions:(r,a)=>{let l=JSON.stringify(r);l!==o&&(n.replaceChildren(
...r.map(({name:i,words:c})=>b("option","",{value:i},c))),o=l),n.value!==a&&(n.value=a)}}}function Kn(t){let e=b("span",
"chart-scale-bar"),n=[1/vt,1,vt].map((a,l)=>b("span","chart-scale-figure",{},`${l===2?"\u2265 ":l===0?"\u2264 ":""}${a}x`)),
o=b("span","chart-scale",{},e,b("span","chart-scale-figures",{},...n)),s=["no data",...t].map(a=>b("span","chart-key",{},
b("span",`chart-mark chart-mark-${a.replace(" ","-")}`),a));return{element:b("div","chart-legend",{role:"img","aria-labe\
l":"Colours: blue is faster than the peers, neutral is even, orange is slower"},b("span","chart-scale-word",{},"faster"),
o,b("span","chart-scale-word",{},"slower"),...s),setPalette:a=>{e.style.backgroundImage=Ln(a)}}}function jn(t){let e=b("\
strong",""),n=b("span",""),o=b("div","chart-tooltip",{role:"tooltip"},e,n);return o.hidden=!0,t.append(o),{element:o,show:([
r,...a],l,i)=>{e.textContent=E(r),n.textContent=E(a.filter(Boolean).join(" \xB7 ")),o.hidden=!1;let{offsetWidth:c,offsetHeight:f}=o,
d=l+14+c>t.clientWidth?l-14-c:l+14,h=i+14+f>t.clientHeight?i-10-f:i+14;o.style.transform=`translate(${Math.round(Math.max(
0,d))}px, ${Math.round(h)}px)`},hide:()=>{o.hidden=!0}}}function Un(){return b("div","chart-spoken",{role:"status","aria\
-live":"polite"})}function Gn(t,e){let n=["rank","slowdown",e,"state","flagged"].map(i=>b("th","",{scope:"col"},i)),o=b(
"tbody",""),s=b("table","",{},b("caption","",{},t),b("thead","",{},b("tr","",{},...n)),o),r=b("div","chart-spoken",{},s),
a="";return{element:r,update:(i,c)=>{let f=i.map(h=>({...h,words:c(h.rank)})),d=JSON.stringify(f);d!==a&&o.replaceChildren(
...f.map(Gr)),a=d}}}function Gr({rank:t,node:e,slowdown:n,isLone:o,words:s,state:r,why:a}){let l=[o?rt:ft(n),s,r??"unkno\
wn",a??"no"];return b("tr","",{},b("th","",{scope:"row"},ot(t,e)),...l.map(i=>b("td","",{},i)))}function qn(t){let e=new MutationObserver(
t);e.observe(document.documentElement,{attributes:!0,attributeFilter:["data-theme","class"]});let n=matchMedia("(prefers\
-color-scheme: dark)");return n.addEventListener("change",t),()=>{e.disconnect(),n.removeEventListener("change",t)}}var zn=10,qr=["Since","For","Why","Cost","Then"];function Yn(t){let e=t.hangs||[],n=e.flatMap(a=>a.earlier||[]).filter(a=>!a.
is_brief),o=e.map(a=>a.earlier_brief).filter(Boolean);if(!n.length&&!o.length)return null;let s=e.reduce((a,l)=>a+(l.earlier_brief?
0:l.earlier_left_out||0),0),r=Math.max(0,n.length-zn)+s;return[u("h3",{key:"title"},"Earlier hangs"),n.length?u("table",
{key:"hangs",class:"rows","data-field":"earlier-hangs"},u("caption",{class:"visually-hidden"},"Past hangs, newest first"),
u("thead",{},u("tr",{},qr.map(a=>u("th",{scope:"col",key:a,class:a==="Then"&&"spare"},a)))),u("tbody",{},Yr(n).map((a,l)=>Vr(
a,l,t)))):null,r?u("p",{key:"more",class:"nothing"},`and ${V(r,"shorter one")}`):null,o.map((a,l)=>zr(a,l,n.length+r>0,t.
run))]}function zr({sentence:t,gpu_seconds_lost:e,is_all:n},o,s,r){let a=w(e)&&e>=1?` ${n?"Cost":"Cost at least"}: ${Y(e,
r.on_gpu)}.`:"";return u("p",{key:`brief-${o}`,"data-field":"brief-hangs"},s?"and ":"",_(t),a)}function Yr(t){let e=t.map(
(o,s)=>s).sort((o,s)=>t[s].duration_s-t[o].duration_s),n=new Set(e.slice(0,zn));return t.filter((o,s)=>n.has(s))}function Vr(t,e,{
now_s:n,run:o}){let s=t.is_end_seen?"":"at least ",r=w(t.gpu_seconds_lost)?Y(t.gpu_seconds_lost,o.on_gpu):"unknown";return u(
"tr",{key:e},u("th",{scope:"row",class:"brief"},W(t.since_s,n)),u("td",{class:"brief"},`${s}${D(t.duration_s)}`),u("td",
{},_(t.sentence)),u("td",{class:"brief"},r),u("td",{class:"spare"},_(t.then)))}var pe=[{state:"lost",tone:"lost",mark:"\u2715",meaning:"no heartbeat: crashed, stopped or cut off"},{state:"stuck",tone:"\
stuck",mark:"\u25A0",meaning:"alive, with open work, but no progress"},{state:"late",tone:"late",mark:"\u25B2",meaning:"\
no progress for half of its timeout"},{state:"missing",tone:"unknown",mark:"?",meaning:"expected, but never seen"},{state:"\
starting",tone:"starting",mark:"\u25C7",meaning:"has not begun a step yet"},{state:"ok",tone:"ok",mark:"\u25CF",meaning:"\
making progress"},{state:"finished",tone:"finished",mark:"\u2713",meaning:"has reported how it ended"}],Xn={state:"unkno\
wn",tone:"unknown",mark:"?",meaning:"no data"},Xr=3;function dt(t){return pe.find(({state:e})=>e===t)||Xn}function Zn(t){
let e=new Array(t.states.length).fill(0),n=0;for(let s of t.state)s>=0&&s<e.length?e[s]+=1:n+=1;let o=t.states.map((s,r)=>({
...dt(s),state:s,count:e[r]}));return n&&o.push({...Xn,count:n}),o.filter(({count:s})=>s>0).sort((s,r)=>ge(s.state)-ge(r.
state))}function ge(t){let e=pe.findIndex(({state:n})=>n===t);return e===-1?pe.length:e}function we(t){return new Set((t||
[]).flatMap(e=>e.victims>0&&e.culprits||[]))}function Jn(t,e,n=new Set){let o=t.states.map(ge),s=a=>n.has(t.rank[a])?0:1,
r=[];return t.state.forEach((a,l)=>{o[a]<Xr&&r.push(l)}),r.sort((a,l)=>s(a)-s(l)||o[t.state[a]]-o[t.state[l]]||Vn(t,l)-Vn(
t,a)),{places:r.slice(0,e),left_out:Math.max(0,r.length-e)}}function Vn(t,e){return Math.max(t.heartbeat_age_s?.[e]??0,t.
progress_age_s?.[e]??0)}function ke(t){let e=Float64Array.from((t||[]).filter(w)).sort();return e.length?{oldest:e[e.length-
1],median:e[Math.floor((e.length-1)/2)]}:null}function Qn(t,e,n){let o=Zr,s=1;for(;o>1&&(s=Math.ceil(t/Math.max(1,Math.floor(
e/o))),!(s*o<=n));o-=o>8?1:.5);s=Math.ceil(t/Math.max(1,Math.floor(e/o)));let r=Math.ceil(t/s);return{width:Math.min(Jr,
e/r),height:o,columns:r,rows:s,total:s*o}}var Zr=24,Jr=110;var Qr=8,ta=["Heartbeat","Step"],ea=132;function so(t,e){let n=ye(t,"state-counts"),o=aa(t),s=ye(t,"grave-ranks"),r=ye(t,
"earlier-hangs"),a=null,l=null,i={how:null,ranks:null},c=0;function f(){if(!a||!a.ranks.rank.length||o.clientWidth===0)return;
let p=document.activeElement===o,g=[o.clientWidth,window.devicePixelRatio,J(),a.theme,p?c:-1,...a.culprits].join();g===i.
how&&ia(i.ranks,a.ranks)||(i={how:g,ranks:a.ranks},l=la(o,a,p?c:null))}function d(){a&&o.setAttribute("aria-valuetext",eo(
a.ranks,c)),o.setAttribute("aria-valuenow",String(c))}function h(p){c=Math.max(0,Math.min(a.ranks.rank.length-1,p)),d(),
f()}o.addEventListener("keydown",p=>{if(!a||!l)return;let g={ArrowRight:1,ArrowLeft:-1,ArrowDown:l.columns,ArrowUp:-l.columns,
Home:-1/0,End:1/0};if(p.key in g)h(c+g[p.key]);else if(p.key==="Enter"||p.key===" ")e.select({rank:a.ranks.rank[c]});else
return;p.preventDefault()}),o.addEventListener("pointermove",p=>{let g=no(p,l,a);o.title=g===null?"":eo(a.ranks,g)}),o.addEventListener(
"click",p=>{let g=no(p,l,a);g!==null&&(h(g),e.select({rank:a.ranks.rank[g]}))}),o.addEventListener("focus",()=>{d(),f()}),
o.addEventListener("blur",f);let m=new ResizeObserver(f);return m.observe(o),{update(p,g){if(a=p&&{ranks:p.ranks,theme:g.
theme,culprits:we(p.hangs)},o.hidden=!p||p.ranks.rank.length===0,$(r,p&&Yn(p)),!p)return $(n,null);let x=p.ranks.rank.indexOf(
g.rank);return x!==-1&&document.activeElement!==o&&(c=x),c=Math.min(c,Math.max(0,p.ranks.rank.length-1)),o.setAttribute(
"aria-valuemax",String(Math.max(0,p.ranks.rank.length-1))),$(n,na(p)),$(s,sa(p,e)),d(),f()},destroy:()=>m.disconnect()}}
function na(t){let{ranks:e}=t;if(!e.rank.length)return u("p",{class:"nothing"},"No rank has sent a heartbeat.");let n=w(
t.run.finished_at_s)||!t.run.is_live;return[u("ul",{class:"state-list"},Zn(e).map(({state:o,tone:s,mark:r,meaning:a,count:l})=>u(
"li",{key:o,title:a,"data-rank-state":s},u("span",{class:"state-mark","aria-hidden":"true"},r)," ",u("strong",{class:"nu\
mber"},O(l)),` ${o}`)),n?null:to("Heartbeat",ke(e.heartbeat_age_s)),n?null:to("Progress",ke(e.progress_age_s))),(t.hangs||
[]).filter(o=>o.sentence).map(o=>oa(o))]}function to(t,e){if(!e)return null;let n=`${t}: median ${C(e.median)} ago, olde\
st ${C(e.oldest)}`;return u("li",{key:t,class:"muted"},n)}function oa(t){return u("p",{class:"hang",key:t.group,"data-to\
ne":t.acknowledged?"watch":"bad",dir:"auto"},t.group?["Group ",_(t.group),": "]:null,I(t.sentence),t.acknowledged?" Ackn\
owledged.":null)}function sa(t,e){let{ranks:n}=t,o=we(t.hangs),{places:s,left_out:r}=Jn(n,Qr,o);return s.length?[u("tabl\
e",{class:"rows"},u("caption",{class:"visually-hidden"},"Ranks that are lost, stuck or late"),u("thead",{},u("tr",{},["R\
ank","State","Heartbeat","Progress","Step","Open section"].map(a=>u("th",{scope:"col",class:ta.includes(a)&&"spare"},a)))),
u("tbody",{},s.map(a=>ra(n,a,o,e)))),r?u("p",{class:"nothing"},`and ${O(r)} more, in the strip`):null]:null}function ra(t,e,n,o){
let s=t.states[t.state[e]],{mark:r,tone:a}=dt(s),l=t.open_section[e];return u("tr",{key:t.rank[e]},u("th",{scope:"row"},
Z(t.rank[e],o)," ",u("small",{},_(_e(t,e))),n.has(t.rank[e])&&u("span",{class:"label strong"},"the others wait for it")),
u("td",{class:"brief","data-rank-state":a},u("span",{class:"state-mark","aria-hidden":"true"},r),` ${s}`),u("td",{class:"\
number spare"},be(t.heartbeat_age_s[e])),u("td",{class:"number"},be(t.progress_age_s[e])),u("td",{class:"number spare"},
O(t.step[e])),u("td",{},l==null?"none":_(t.open_sections[l])))}function be(t){return w(t)?`${C(t)} ago`:"never"}function _e(t,e){
return t.nodes[t.node[e]]??""}function eo(t,e){let n=t.open_section[e],o=[`rank ${t.rank[e]}${_e(t,e)?` on ${_e(t,e)}`:""}\
: ${t.states[t.state[e]]??"unknown"}`,`heartbeat ${be(t.heartbeat_age_s[e])}`];return w(t.step[e])&&o.push(`step ${O(t.step[e])}`),
n!=null&&o.push(`in ${t.open_sections[n]}`),E(o.join(", "))}function ye(t,e){let n=document.createElement("div");return n.
className=e,t.append(n),n}function aa(t){let e=document.createElement("canvas");return e.className="strip",e.tabIndex=0,
e.setAttribute("role","slider"),e.setAttribute("aria-label","All ranks; arrow keys move from rank to rank, Enter shows o\
ne"),e.setAttribute("aria-valuemin","0"),t.append(e),e}function no(t,e,n){if(!e||!n)return null;let o=J(),s=Math.floor(t.
offsetX/o/e.width),r=Math.floor(t.offsetY/o/e.height)*e.columns+s;return s<e.columns&&r>=0&&r<n.ranks.rank.length?r:null}
function la(t,{ranks:e,culprits:n},o){let s=Qn(e.rank.length,t.clientWidth/J(),ea),r=ca(t,s.total),a=getComputedStyle(t),
l=h=>a.getPropertyValue(`--state-${h}`),i=e.states.map(h=>l(dt(h).tone)),c=l("unknown"),f=s.height>=4?1:0,d=h=>[h%s.columns*
s.width,Math.floor(h/s.columns)*s.height];return e.state.forEach((h,m)=>{r.fillStyle=i[h]||c;let[p,g]=d(m);r.fillRect(p,
g,s.width-f,s.height-f)}),s.width>=16&&ua(r,e,s,d,a),e.rank.forEach((h,m)=>{n.has(h)&&oo(r,d(m),s,a.getPropertyValue("--\
text"))}),o!==null&&oo(r,d(o),s,a.getPropertyValue("--focus")),s}function ia(t,e){return t===e?!0:!t||t.state.length!==e.
state.length?!1:t.states.join()===e.states.join()&&t.state.every((n,o)=>n===e.state[o]&&t.rank[o]===e.rank[o])}function ca(t,e){
let n=(window.devicePixelRatio||1)*J(),o=[Math.round(t.clientWidth*n/J()),Math.round(e*n)];t.style.height=`${e/16}rem`,t.
width!==o[0]&&(t.width=o[0]),t.height!==o[1]&&(t.height=o[1]);let s=t.getContext("2d");return s.setTransform(n,0,0,n,0,0),
s.clearRect(0,0,t.clientWidth,e),s}function ua(t,e,n,o,s){t.fillStyle=s.getPropertyValue("--on-state"),t.font=`${Math.min(
11,Math.floor(n.width*.48))}px system-ui, sans-serif`,t.textAlign="center",t.textBaseline="middle",e.state.forEach((r,a)=>{
let{state:l,mark:i}=dt(e.states[r]),c=String(e.rank[a]),f=l==="ok"?c:n.width>=40?`${i} ${c}`:i,[d,h]=o(a);t.fillText(f,d+
(n.width-1)/2,h+n.height/2)})}function oo(t,[e,n],o,s){t.strokeStyle=s,t.lineWidth=2,t.strokeRect(e+1,n+1,Math.max(o.width,
8)-3,Math.max(o.height,8)-3)}function ro(t,e){let n=null,o=!1,s=()=>$(t,fa(n,o,r));async function r(a){a.preventDefault();let l=t.querySelector("inpu\
t");o||!l.value.trim()||(o=!0,s(),n=await e.login(l.value.trim()),o=!1,n===null&&(l.value=""),s(),n!==null&&l.focus())}return{
update(a){let l=t.hidden&&a.state==="locked";t.hidden=a.state!=="locked",!t.hidden&&(s(),l&&t.querySelector("input").focus())}}}
function fa(t,e,n){return[u("h1",{},"This collector asks for a token"),u("p",{},"Use one with the role read. It is kept \
until the browser is closed."),u("form",{onsubmit:n},u("label",{for:"login-token"},"Token"),u("input",{id:"login-token",
type:"password",autocomplete:"current-password",spellcheck:"false","aria-describedby":"login-problem"}),u("button",{type:"\
submit",disabled:e},"Log in")),u("p",{id:"login-problem",role:"alert"},t?`Not accepted: ${t}.`:"")]}function bt(t){let e=[t];for(;e[e.length-1].length>1;)e.push(da(e[e.length-1]));return e}function da(t){let e=new Uint8Array(
t.length+1>>1);for(let n=0,o=0;n<e.length;n+=1,o+=2){let s=t[o],r=o+1<t.length?t[o+1]:0;e[n]=r>s?r:s}return e}function Xt(t,e,n=0){
let o=new Uint8Array(e.length);for(let s=0;s<o.length;s+=1)o[s]=t[n+e[s]];return o}function L(t,e){let[n,o]=[t.cellWidth*
e,t.cellHeight*e],s=o>=1?0:Math.ceil(Math.log2(2/o));return{level:s,rows:2**s,columns:n>=1?1:Math.ceil(2/n)}}function Zt(t,e){
let n=Math.floor(t.firstRow/e.rows),o=Math.floor(t.firstColumn/e.columns);return{firstBin:n,bins:Math.max(0,Math.ceil(t.
endRow/e.rows)-n),firstGroup:o,groups:Math.max(0,Math.ceil(t.endColumn/e.columns)-o)}}function Jt(t,e,n,o,s,r){let{firstBin:a,
bins:l,firstGroup:i,groups:c}=s,f=new Uint8Array(l);for(let d=0;d<c;d+=1){let h=(i+d)*o.columns;ha(f,n,h,h+o.columns,o.level,
a);for(let m=0,p=d;m<l;m+=1,p+=e)t[p]=r[f[m]]}}function ha(t,e,n,o,s,r){t.fill(0);for(let a=n;a<Math.min(o,e.length);a+=
1){let l=e[a];if(!l)continue;let i=l[Math.min(s,l.length-1)];for(let c=0;c<t.length;c+=1){let f=i[r+c];f>t[c]&&(t[c]=f)}}}
function ao(t,e,n,o,s){let r=o-o%n.rows,a=s-s%n.columns,l=Math.min(e,r+n.rows),i={row:o,column:s,byte:t[s]?.[0][o]??0,ranks:l-
r};for(let c=a;c<Math.min(t.length,a+n.columns);c+=1){let f=t[c]?.[0];for(let d=r;f&&d<l;d+=1)f[d]>i.byte&&Object.assign(
i,{row:d,column:c,byte:f[d]})}return i}function io(t,e,n,o){let s=e.getContext("2d"),r={request:0,width:0,height:0,ratio:1,scale:1,isGone:!1},a=()=>{let d=J(),
h=(globalThis.devicePixelRatio||1)*d,[m,p]=[t.clientWidth/d,t.clientHeight/d];m===r.width&&p===r.height&&h===r.ratio||(Object.
assign(r,{width:m,height:p,ratio:h,scale:d}),e.width=Math.max(1,Math.round(m*h)),e.height=Math.max(1,Math.round(p*h)),o(
r),l())},l=()=>{r.request&&cancelAnimationFrame(r.request),r.request=0,!r.isGone&&r.width>0&&r.height>0&&n(s,r)},i=()=>{
!r.request&&!r.isGone&&(r.request=requestAnimationFrame(l))},c=new ResizeObserver(a);return c.observe(t),globalThis.addEventListener(
"resize",a),{schedule:i,measure:a,state:r,destroy:()=>{r.isGone=!0,cancelAnimationFrame(r.request),c.disconnect(),globalThis.
removeEventListener("resize",a)}}}function Qt(){let t=document.createElement("canvas"),e=t.getContext("2d"),n={canvas:t,
context:e,image:null,target:null,stride:0};return{bitmapFor:(s,r)=>((!n.image||s>n.image.width||r>n.image.height)&&(t.width=
Math.max(n.image?.width??0,Math.ceil(s/32)*32),t.height=Math.max(n.image?.height??0,Math.ceil(r/64)*64),n.image=e.createImageData(
t.width,t.height),n.target=new Uint32Array(n.image.data.buffer),n.stride=t.width),n)}}function co(t,e){return{empty:lo(t,
e.empty,e.hatch,6,.8),silent:lo(t,null,e.flag,7,2.2)}}function lo(t,e,n,o,s){let r=Math.ceil(globalThis.devicePixelRatio||
1),a=document.createElement("canvas");a.width=o*r,a.height=o*r;let l=a.getContext("2d");l.scale(r,r),e&&(l.fillStyle=e,l.
fillRect(0,0,o,o)),l.strokeStyle=n,l.lineWidth=s,l.beginPath();for(let c of[-o,0,o])l.moveTo(c-1,o+1),l.lineTo(c+o+1,-1);
l.stroke();let i=t.createPattern(a,"repeat");return i.setTransform(new DOMMatrix().scale(1/r)),i}var ma=[12,18,27,40,60,90,120,180,240,360];function fo(t){return ma.find(e=>e>=t)??t}function _t(t){return{x:0,y:0,...xe(
t)}}function xe(t){let{width:e,height:n,rows:o,slots:s,mostCellWidth:r,mostCellHeight:a}=t;return{cellWidth:Math.min(r,e/
Math.max(1,s)),cellHeight:Math.min(a,n/Math.max(1,o))}}function j(t,e){let n=xe(e),o=q(t.cellWidth,n.cellWidth,e.mostCellWidth),
s=q(t.cellHeight,n.cellHeight,e.mostCellHeight);return{x:q(t.x,0,uo(e.columns,e.width/o)),y:q(t.y,0,uo(e.rows,e.height/s)),
cellWidth:o,cellHeight:s}}function uo(t,e){let n=t-e;return n>1e-6?n:0}function q(t,e,n){return Math.max(e,Math.min(Math.
max(e,n),Number.isFinite(t)?t:e))}function ho(t,e,n,o){let s=t.x-n/t.cellWidth,r=t.y-o/t.cellHeight;return j({...t,x:s,y:r},
e)}function mo(t,e,n,o,s,r){let a=j({...t,cellWidth:t.cellWidth*n,cellHeight:t.cellHeight*o},e),l=t.x+s/t.cellWidth-s/a.
cellWidth,i=t.y+r/t.cellHeight-r/a.cellHeight;return j({...a,x:l,y:i},e)}function Te(t,e,n,o){let s=Math.floor(t.x+n/t.cellWidth),
r=Math.floor(t.y+o/t.cellHeight);return n>=0&&o>=0&&n<e.width&&o<e.height&&s>=0&&r>=0&&s<e.columns&&r<e.rows?{row:r,column:s}:
null}function po(t,e,n,o){let s=e.width/t.cellWidth,r=e.height/t.cellHeight,a=q(t.x,o+1-s,o),l=q(t.y,n+1-r,n);return j({
...t,x:a,y:l},e)}function xt(t,e){let n=(o,s,r,a)=>Math.min(a,Math.ceil(o+s/r-1e-6));return{firstRow:Math.max(0,Math.floor(
t.y+1e-6)),endRow:n(t.y,e.height,t.cellHeight,e.rows),firstColumn:Math.max(0,Math.floor(t.x+1e-6)),endColumn:n(t.x,e.width,
t.cellWidth,e.columns)}}function Se(t,e){let n=xe(e);return{across:t.cellWidth<=n.cellWidth*1.001,down:t.cellHeight<=n.cellHeight*
1.001}}function Tt(t,e){return{across:e.columns*t.cellWidth>e.width+.5,down:e.rows*t.cellHeight>e.height+.5}}function te(t,e){
return t.x+e.width/t.cellWidth>=e.columns-.01}function Oe(t,e){let n=1;for(let o=0;n*t<e;o+=1)n=[1,2,5][o%3]*10**Math.floor(
o/3);return n}function go(t,e){let n=Qt(),o={grid:null,pixels:null,width:0,height:0,patch:null,bitmap:null},s=null,r=c=>{s=c;let[f,d]=[
t.clientWidth/c.scale,Math.min(t.clientHeight/c.scale,c.layout.top+c.bounds.height)];f===0||c.grid.rows===0||(pa(o,n,c,f,
d),ga(t,o,c,f,d))},a=c=>{let f=t.getBoundingClientRect(),{view:d,bounds:h}=s,m=(c.clientX-f.left)/s.scale/o.width*h.columns-
h.width/d.cellWidth/2,p=((c.clientY-f.top)/s.scale-s.layout.top)/Me(s,o.height)*h.rows-h.height/d.cellHeight/2;e(j({...d,
x:m,y:p},h))},l=c=>{t.setPointerCapture(c.pointerId),a(c)},i=c=>t.hasPointerCapture(c.pointerId)&&a(c);return t.addEventListener(
"pointerdown",l),t.addEventListener("pointermove",i),{update:r}}function Me(t,e){return e-t.layout.top}function pa(t,e,n,o,s){
if(t.grid===n.grid&&t.pixels===n.pixels&&t.width===o&&t.height===s)return;let{rows:a,columns:l,levels:i}=n.grid,c=L({cellWidth:o/
l,cellHeight:Me(n,s)/a},1),f=Zt({firstRow:0,endRow:a,firstColumn:0,endColumn:l},c),d=e.bitmapFor(f.groups,f.bins);Jt(d.target,
d.stride,i,c,f,n.pixels),d.context.putImageData(d.image,0,0,0,0,f.groups,f.bins),Object.assign(t,{grid:n.grid,pixels:n.pixels,
width:o,height:s,patch:f,bitmap:d,detail:c})}function ga(t,e,n,o,s){let{view:r,bounds:a,palette:l,ratio:i,layout:c,grid:f}=n,
d=t.clientHeight/n.scale,[h,m]=[Math.round(o*i),Math.round(d*i)];(t.width!==h||t.height!==m)&&Object.assign(t,{width:h,height:m});
let p=t.getContext("2d"),g=Me(n,s);p.setTransform(i,0,0,i,0,0),p.clearRect(0,0,o,d),p.translate(0,c.top),p.fillStyle=l.empty,
p.fillRect(0,0,o,g);let{patch:x,bitmap:y,detail:k}=e,T={x:x.groups*k.columns/f.columns,y:x.bins*k.rows/f.rows};p.imageSmoothingEnabled=
!1,p.drawImage(y.canvas,0,0,x.groups,x.bins,0,0,o*T.x,g*T.y),p.clearRect(0,g,o,d);let M=Tt(r,a);!M.across&&!M.down||wa(p,
n,o,g)}function wa(t,{view:e,bounds:n,palette:o},s,r){let a=(d,h,m)=>Math.min(1,d/h/m),l=e.x/n.columns*s,i=e.y/n.rows*r,
c=Math.max(4,a(n.width,e.cellWidth,n.columns)*s),f=Math.max(4,a(n.height,e.cellHeight,n.rows)*r);t.fillStyle=o.surface,t.
globalAlpha=.55,t.fillRect(0,0,s,i),t.fillRect(0,i+f,s,r-i-f),t.globalAlpha=1,t.strokeStyle=o.accent,t.lineWidth=2,t.strokeRect(
l+1,Math.min(i+1,r-4),Math.max(3,c-2),Math.max(3,f-2))}function ko({it:t,show:e,found:n,surface:o,tooltip:s,spoken:r,on:a}){let l=(k,T)=>[k-t.layout.left,T-t.layout.top],i=()=>[
t.bounds.width/2+t.layout.left,t.bounds.height/2+t.layout.top],c=(k,T,M)=>s.show(a.words(n(k)),T*t.scale,M*t.scale),f=()=>{
r.textContent=E(a.words(n(t.focus)).filter(Boolean).join(", "));let k=t.layout.left+(t.focus.column+1-t.view.x)*t.view.cellWidth;
c(t.focus,k,t.layout.top+(t.focus.row+1-t.view.y)*t.view.cellHeight)},d=k=>{let T=k?.row===t.hover?.row&&k?.column===t.hover?.
column;t.hover=k,T||o.schedule()},h=(k,T)=>{t.isPointed=k!==null,t.pointedAt_ms=performance.now();let M=k===null||!t.view?
null:Te(t.view,t.bounds,...l(k,T)),N=M&&n(M);d(N&&{row:N.row,column:N.column}),M?c(M,k,T):s.hide()},m=(k,T)=>{let M=Te(t.
view,t.bounds,...l(k,T));M&&(t.focus=M,a.pick(n(M)))},p=(k,T,M,N)=>{let at=M===void 0?i():[M,N];return e(mo(t.view,t.bounds,
k,T,...l(...at)))},g=(k,T,M)=>_t(t.bounds).cellHeight<t.bounds.mostCellHeight*.999?p(1,k,T,M):p(k,1,T,M),x=()=>{let{grid:k}=t;
if(t.focus||k.rows===0||k.columns===0)return;if(k.startCell!==null){t.focus={row:Math.floor(k.startCell/k.columns),column:k.
startCell%k.columns};return}let T=k.selectedRow??k.flaggedRows[0]??0;t.focus={row:T,column:k.selectedColumn??(k.hasSlots?
k.columns-1:0)}},y=(k,T)=>{let{grid:M}=t;if(x(),!t.focus)return;t.isFocused=!0;let N=L(t.view,t.ratio);t.focus={row:wo(t.
focus.row,k,N.rows,M.rows),column:wo(t.focus.column,T,N.columns,M.columns)},t.view=po(t.view,t.bounds,t.focus.row,t.focus.
column),o.schedule(),f()};return{pointAt:h,pickAt:m,zoomBy:p,zoomRows:g,moveFocus:y,panBy:(k,T)=>e(ho(t.view,t.bounds,k,
T)),fit:()=>e(_t(t.bounds)),pickFocus:()=>t.focus&&a.pick(n(t.focus)),leaveFocus:()=>t.focus?(t.focus=null,t.isFocused=!1,
s.hide(),o.schedule(),!0):!1,focus:k=>{t.isFocused=k,o.schedule(),!(!k||!t.view)&&(x(),t.focus&&y(0,0))},blur:()=>{t.isFocused=
!1,s.hide(),o.schedule()}}}function wo(t,e,n,o){return e===1/0?o-1:e===-1/0?0:q(t+e*n,0,o-1)}var ka=3.2,ya=24;function $e({context:t,names:e},n,o,s=!1){let r=`${o}|${n}`;return e.has(r)||e.set(r,ba(t,n,o,s)),e.get(
r)}function ba(t,e,n,o){let s=e,r=()=>s===e?e:o?`\u2026${s}`:`${s}\u2026`;for(;s.length>1&&t.measureText(r()).width>n;)s=
o?s.slice(1):s.slice(0,-1);return r()}function Ee({view:t,bounds:e,layout:n},o){let s=(o+.5-t.y)*t.cellHeight;return n.top+
Math.max(5,Math.min(e.height-5,s))}function yo(t,e){let{context:n,grid:o,view:s,layout:r,palette:a}=t,l=Oe(s.cellHeight,
14);n.textAlign="right",n.textBaseline="middle";let i=(d,h)=>{let m=Ee(t,d);return n.fillStyle=h,n.fillText($e(t,o.rowName(
d),r.left-15,!0),r.left-13,m),m},c=[],f=(d,h)=>{if(d===null||d<e.firstRow||d>=e.endRow)return;let m=Ee(t,d);c.every(p=>Math.
abs(m-p)>=12)&&c.push(i(d,h))};f(o.selectedRow,a.accent);for(let d of o.flaggedRows)c.length<ya&&f(d,a.flag);for(let d=Math.
ceil(e.firstRow/l)*l;d<e.endRow;d+=l)f(d,a.quiet)}function bo(t,e){let{context:n,grid:o,view:s,bounds:r,layout:a,palette:l}=t;
if(n.fillStyle=l.quiet,o.hasNamesOnTop)return _a(t,e);let i=a.top>a.bottom,c=Oe(s.cellWidth,o.columnLabelRoom),f=i?a.top-
9:a.top+Math.min(r.height,r.rows*s.cellHeight)+12;n.textAlign="center",n.textBaseline="middle";for(let d=Math.ceil(e.firstColumn/
c)*c;d<e.endColumn;d+=c){let h=(d+.5-s.x)*s.cellWidth;if(h<0||h>r.width)continue;let[m,p]=[o.columnName(d),o.columnName(
d).length*ka];n.fillText(m,a.left+Math.max(p-8,Math.min(r.width+a.right-p,h)),f)}n.textAlign="right",n.fillText(o.corner,
a.left-13,f)}function _a(t,e){let{context:n,grid:o,view:s,layout:r,palette:a}=t,{isSlanted:l}=r,i=Math.max(1,Math.ceil(13/
s.cellWidth)),c=l?(r.top-14)*Math.SQRT2:s.cellWidth-4;n.textBaseline=l?"middle":"alphabetic",n.textAlign=l?"left":"cente\
r";for(let f=e.firstColumn;f<e.endColumn;f+=i){n.save(),n.translate(r.left+(f+.5-s.x)*s.cellWidth,r.top-8),l&&n.rotate(-Math.
PI/4),n.fillStyle=f===o.selectedColumn?a.accent:a.quiet;let d=l?"":o.columnKind(f);n.fillText($e(t,o.columnName(f),c),0,
d?-13:0),n.fillStyle=a.quiet,d&&n.fillText($e(t,d,c),0,0),n.restore()}}function _o(t,e){let{context:n,grid:o,layout:s,palette:r}=t;
n.fillStyle=r.flag,n.strokeStyle=r.flag,n.lineWidth=1;let a=-10;for(let l of o.flaggedRows){if(l<e.firstRow||l>=e.endRow)
continue;let i=Ee(t,l);i-a<1||(a=i,n.beginPath(),n.moveTo(s.left-2,i),n.lineTo(s.left-10,i-4.5),n.lineTo(s.left-10,i+4.5),
n.closePath(),o.suspectRows.has(l)?n.stroke():n.fill())}}var So=13,xa=700,Ta=24,xo=7,To={width:34,height:15};function Oo(t){let{context:e,bounds:n,layout:o,palette:s,ratio:r}=t,
a=xt(t.view,n);e.setTransform(r,0,0,r,0,0),e.clearRect(0,0,o.left+n.width+o.right,o.top+n.height+o.bottom),e.font=`11px ${s.
font}`,yo(t,a),bo(t,a),_o(t,a),e.save(),e.beginPath(),e.rect(o.left,o.top,n.width,n.height),e.clip(),e.translate(o.left,
o.top),Sa(t,a),$a(t),Aa(t,a),Na(t,a),Ca(t,a),va(t),e.restore(),Ha(t)}function Sa(t,e){let{view:n,ratio:o}=t,s=(e.endRow-
e.firstRow)*(e.endColumn-e.firstColumn);s<=0||(Math.min(n.cellWidth,n.cellHeight)>=So&&s<=xa?Ea(t,e):(Oa(t,e,L(n,o)),Ma(
t,e)),n.cellWidth>=To.width&&n.cellHeight>=To.height&&Ra(t,e))}function Oa(t,e,n){let{context:o,grid:s,view:r,bounds:a,patterns:l,
pixels:i,scratch:c}=t,f=Zt(e,n),d=c.bitmapFor(f.groups,f.bins);Jt(d.target,d.stride,s.levels,n,f,i),d.context.putImageData(
d.image,0,0,0,0,f.groups,f.bins);let h=(f.firstGroup*n.columns-r.x)*r.cellWidth,m=(f.firstBin*n.rows-r.y)*r.cellHeight;o.
save(),o.beginPath(),o.rect(-r.x*r.cellWidth,-r.y*r.cellHeight,a.columns*r.cellWidth,a.rows*r.cellHeight),o.clip(),o.fillStyle=
l.empty,o.fillRect(0,0,a.width,a.height),o.imageSmoothingEnabled=!1,o.drawImage(d.canvas,0,0,f.groups,f.bins,h,m,f.groups*
n.columns*r.cellWidth,f.bins*n.rows*r.cellHeight),o.restore()}function Ma({context:t,view:e,palette:n,ratio:o},s){let[r,
a]=[1/o,h=>Math.round(h*o)/o],l=(h,m,p)=>a((h-m)*p),[i,c]=[l(s.firstColumn,e.x,e.cellWidth),l(s.endColumn,e.x,e.cellWidth)],
[f,d]=[l(s.firstRow,e.y,e.cellHeight),l(s.endRow,e.y,e.cellHeight)];if(t.fillStyle=n.surface,e.cellHeight>=5){let h=e.cellHeight>=
12?2:Math.max(r,1);for(let m=s.firstRow+1;m<s.endRow;m+=1)t.fillRect(i,l(m,e.y,e.cellHeight)-h/2,c-i,h)}if(!(e.cellWidth<
8))for(let h=s.firstColumn+1;h<s.endColumn;h+=1)t.fillRect(l(h,e.x,e.cellWidth)-.5,f,1,d-f)}function $a({context:t,grid:e,
view:n,palette:o}){if(e.cells===null||e.cells===e.rows*e.columns)return;let[s,r]=[Math.floor(e.cells/e.columns),e.cells%
e.columns],a=(r-n.x)*n.cellWidth;t.fillStyle=o.surface,t.fillRect(a,(s-n.y)*n.cellHeight,(e.columns-r)*n.cellWidth+1,n.cellHeight+
1)}function Mo({grid:t,view:e},n,o){for(let s=n.firstColumn;s<n.endColumn;s+=1){let r=t.levels[s]?.[0],a=(s-e.x)*e.cellWidth;
for(let l=n.firstRow;l<n.endRow;l+=1)o(a,(l-e.y)*e.cellHeight,r?r[l]:0,l,s)}}function Ea(t,e){let{context:n,view:o,styles:s,
patterns:r}=t,a=Math.min(4,o.cellWidth/5,o.cellHeight/5);Mo(t,e,(l,i,c)=>{n.fillStyle=c?s[c].fill:r.empty,n.beginPath(),
n.roundRect(l+1,i+1,o.cellWidth-2,o.cellHeight-2,a),n.fill()})}function Ra(t,e){let{context:n,grid:o,view:s,palette:r,styles:a}=t;
n.textAlign="center",n.textBaseline="middle",n.font=`${s.cellHeight>=26&&s.cellWidth>=48?12.5:11}px ${r.font}`,Mo(t,e,(l,i,c,f,d)=>{
if(!c||o.hatched.has(f*o.columns+d))return;n.fillStyle=a[c].ink;let h=o.exactAt?o.exactAt(f,d):qt(c);n.fillText(Dn(h),l+
s.cellWidth/2,i+s.cellHeight/2+.5)}),n.font=`11px ${r.font}`}function Aa({context:t,grid:e,view:n,palette:o,patterns:s},r){
if(e.hatched.size===0)return;let a=Math.min(n.cellWidth,n.cellHeight)>=So?1:0;for(let l of e.hatched){let[i,c]=[Math.floor(
l/e.columns),l%e.columns];if(!(i>=r.firstRow&&i<r.endRow&&c>=r.firstColumn&&c<r.endColumn))continue;let d=(c-n.x)*n.cellWidth+
a,h=(i-n.y)*n.cellHeight+a,m=Math.max(3,n.cellWidth-2*a),p=Math.max(3,n.cellHeight-2*a);t.fillStyle=o.surface,t.fillRect(
d,h,m,p),t.fillStyle=s.silent,t.fillRect(d,h,m,p),t.strokeStyle=o.flag,t.lineWidth=1,t.strokeRect(d+.5,h+.5,m-1,p-1)}}function Na({
context:t,grid:e,view:n,bounds:o,palette:s},r){t.fillStyle=s.quiet;for(let a of e.rowBreaks)n.cellHeight<3||a<=r.firstRow||
a>=r.endRow||t.fillRect(0,Math.round((a-n.y)*n.cellHeight)-.5,Math.min(o.width,(o.columns-n.x)*n.cellWidth),1);for(let a of e.
columnBreaks){if(a<=r.firstColumn||a>=r.endColumn)continue;let l=Math.round((a-n.x)*n.cellWidth);for(let i=0;i<Math.min(
o.height,o.rows*n.cellHeight);i+=6)t.fillRect(l-1,i,2,3)}}function va({context:t,grid:e,view:n,bounds:o,palette:s}){if(e.
selectedRow===null)return;let r=(e.selectedRow-n.y)*n.cellHeight;if(r>o.height||r+n.cellHeight<0)return;t.strokeStyle=s.
accent,t.lineWidth=1.5;let a=Math.min(o.width,(o.columns-n.x)*n.cellWidth);t.strokeRect(.75,r-.75,a-1.5,n.cellHeight+1.5)}
function Ca({context:t,grid:e,view:n,bounds:o,palette:s},r){let a=e.flaggedRows.filter(c=>c>=r.firstRow&&c<r.endRow);if(a.
length+e.flaggedCells.size>Ta)return;let l=Math.min(o.width,(o.columns-n.x)*n.cellWidth),i=(c,f,d,h)=>{let m=Math.max(xo,
n.cellHeight),p=(c+.5-n.y)*n.cellHeight-m/2;t.setLineDash(h?[4,3]:[]),t.strokeRect(f+1,p+1,d-2,m-2)};t.save(),t.strokeStyle=
s.flag,t.lineWidth=2;for(let c of a)i(c,0,l,e.suspectRows.has(c));for(let[c,f]of e.flaggedCells){let[d,h]=[Math.floor(c/
e.columns),c%e.columns],m=Math.max(xo,n.cellWidth);i(d,(h+.5-n.x)*n.cellWidth-m/2,m,!f)}t.restore()}function Ha({context:t,
grid:e,view:n,layout:o,palette:s,hover:r,focus:a,isFocused:l}){let i=(c,f,d)=>{let[h,m]=[Math.max(5,n.cellWidth),Math.max(
5,n.cellHeight)],p=o.left+(c.column+.5-n.x)*n.cellWidth-h/2,g=o.top+(c.row+.5-n.y)*n.cellHeight-m/2;t.strokeStyle=f,t.lineWidth=
d,t.strokeRect(p,g,h,m)};e.markedCell!==null&&i({row:Math.floor(e.markedCell/e.columns),column:e.markedCell%e.columns},s.
accent,2.5),r&&i(r,s.ink,1.5),!(!a||!l)&&(i(a,s.surface,5),i(a,s.accent,2.5))}function Eo(t,e,n=()=>1){let o=r=>{let a=t.getBoundingClientRect();return[(r.clientX-a.left)/n(),(r.clientY-a.top)/n()]},
s=[...Wa(t,e,o),["wheel",r=>Ia(r,e,o)],["dblclick",r=>e.zoomRows(r.shiftKey?.4:2.5,...o(r))],["keydown",r=>Fa(r,e)],["fo\
cus",()=>e.focus(t.matches(":focus-visible"))],["blur",()=>e.blur()]];for(let[r,a]of s)t.addEventListener(r,a,{passive:!1});
return()=>s.forEach(([r,a])=>t.removeEventListener(r,a))}function Wa(t,e,n){let o=new Map,s=0,r=i=>{i.button>0||(t.setPointerCapture?.(
i.pointerId),o.set(i.pointerId,n(i)),s=o.size>1?1/0:0)},a=i=>{let[c,f]=n(i),d=o.get(i.pointerId);if(!d){i.pointerType!==
"touch"&&e.pointAt(c,f);return}o.size>1&&La(o,i.pointerId,[c,f],e),s+=Math.hypot(c-d[0],f-d[1]),o.size===1&&s>4&&(e.pointAt(
null),e.panBy(c-d[0],f-d[1])),o.set(i.pointerId,[c,f])},l=i=>{!o.delete(i.pointerId)||i.type==="pointercancel"||s>4||(e.
pointAt(...n(i)),e.pickAt(...n(i)))};return[["pointerdown",r],["pointermove",a],["pointerup",l],["pointercancel",l],["po\
interleave",i=>i.pointerType!=="touch"&&e.pointAt(null)]]}function La(t,e,n,o){let[s]=[...t].filter(([l])=>l!==e).map(([
,l])=>l),r=t.get(e),a=l=>{let[i,c]=[Math.abs(r[l]-s[l]),Math.abs(n[l]-s[l])];return i<24||c<24?1:c/i};o.panBy((n[0]-r[0])/
2,(n[1]-r[1])/2),o.zoomBy(a(0),a(1),(n[0]+s[0])/2,(n[1]+s[1])/2)}function Ia(t,e,n){let o=t.deltaMode===1?16:t.deltaMode===
2?400:1,[s,r]=[t.deltaX*o,t.deltaY*o],[a,l]=n(t);if(t.ctrlKey||t.metaKey){let c=Math.exp(-Math.max(-60,Math.min(60,r||s))/
150);t.shiftKey?e.zoomBy(c,1,a,l):e.zoomRows(c,a,l),e.pointAt(a,l),t.preventDefault();return}(t.shiftKey&&s===0?e.panBy(
-r,0):e.panBy(-s,-r))&&t.preventDefault(),e.pointAt(a,l)}var Pa={ArrowUp:[-1,0],ArrowDown:[1,0],ArrowLeft:[0,-1],ArrowRight:[
0,1],PageUp:[-20,0],PageDown:[20,0]},$o=60;function Fa(t,e){t.altKey||t.metaKey||Da(t,e)&&t.preventDefault()}function Da(t,e){
let n=Pa[t.key];if(n&&t.shiftKey)return e.panBy(-n[1]*$o,-n[0]*$o),!0;if(n&&!t.ctrlKey)return e.moveFocus(...n),!0;let o={
Home:()=>t.ctrlKey?e.moveFocus(-1/0,0):e.moveFocus(0,-1/0),End:()=>t.ctrlKey?e.moveFocus(1/0,0):e.moveFocus(0,1/0),Enter:()=>e.
pickFocus()," ":()=>e.pickFocus(),Escape:()=>e.leaveFocus(),"+":()=>e.zoomRows(1.4),"=":()=>e.zoomRows(1.4),"-":()=>e.zoomRows(
1/1.4),"]":()=>e.zoomBy(1.4,1),"[":()=>e.zoomBy(1/1.4,1),0:()=>e.fit()};return t.ctrlKey&&!["Home","End"].includes(t.key)||
!Object.hasOwn(o,t.key)?!1:o[t.key]()!==!1}var Ba=6e4,Q={rows:0,columns:0,levels:[],rowKeys:[],columnKeys:[],rowName:()=>"",columnName:()=>"",columnKind:()=>"",columnLabelRoom:70,
corner:"",flaggedRows:[],suspectRows:new Set,flaggedCells:new Map,isRanking:!1,selectedRow:null,selectedColumn:null,markedCell:null,
startCell:null,rowBreaks:[],columnBreaks:[],hatched:new Set,cells:null,hasNamesOnTop:!1,layoutFor:null,hasSlots:!1,mostCellWidth:60,
mostCellHeight:30};function Ro({host:t,canvas:e,tooltip:n,spoken:o,layout:s,on:r}){let a={grid:Q,view:null,bounds:null,layout:s,
palette:null,pixels:null,styles:null,patterns:null,scratch:Qt(),names:new Map,hover:null,focus:null,isFocused:!1,isPointed:!1,
pointedAt_ms:0,ratio:1,scale:1,draws:0},c=io(t,e,(y,k)=>{if(!a.view)return;a.palette||Object.assign(a,Ka(t,y)),a.draws+=
1,Oo(Object.assign(a,{context:y,ratio:k.ratio}));let{across:T,down:M}=Tt(a.view,a.bounds),N=T||M?"none":"pan-y";e.style.
touchAction!==N&&(e.style.touchAction=N),r.changed(a)},y=>{a.patterns=a.palette=null,Object.assign(a,{ratio:y.ratio,scale:y.
scale}),ja(a,y)}),f=y=>{let k=a.view===null||Object.keys(y).some(T=>y[T]!==a.view[T]);return a.view=y,k&&c.schedule(),k},
h=ko({it:a,show:f,found:y=>ao(a.grid.levels,a.grid.rows,L(a.view,a.ratio),y.row,y.column),surface:c,tooltip:n,spoken:o,on:r}),
m=Eo(e,h,()=>c.state.scale),p=qn(()=>{a.palette=null,c.schedule()});return{it:a,actions:h,setGrid:(y,k=!1)=>{let T=a.grid;
a.grid=y,a.names.clear(),c.measure(),a.bounds&&c.state.width&&Ua(a,T,c.state,k),c.schedule()},show:f,destroy:()=>[m,p,c.
destroy].forEach(y=>y())}}function Ka(t,e){let n=Cn(t);return{palette:n,pixels:Hn(n),styles:Wn(n),patterns:co(e,n)}}function Ao(t,e){
let{grid:n}=t;n.layoutFor&&(t.layout=n.layoutFor(e.width));let{layout:o}=t;return{columns:n.columns,rows:n.rows,slots:n.
hasSlots?fo(n.columns):n.columns,width:Math.max(1,e.width-o.left-o.right),height:Math.max(1,e.height-o.top-o.bottom),mostCellWidth:n.
mostCellWidth,mostCellHeight:n.mostCellHeight}}function ja(t,e){let n=t.view?Se(t.view,t.bounds):{across:!0,down:!0};t.bounds=
Ao(t,e);let o=_t(t.bounds),s={...t.view??o};n.across&&(s.cellWidth=o.cellWidth),n.down&&(s.cellHeight=o.cellHeight),t.view=
j(s,t.bounds)}function Re(t){return t.isFocused||t.isPointed&&performance.now()-t.pointedAt_ms<Ba}function Ua(t,e,n,o){let s=Re(
t),r=te(t.view,t.bounds),a=Se(t.view,t.bounds),l=Ga(e,t.grid);t.bounds=Ao(t,n);let i=_t(t.bounds),c={...t.view,x:t.view.
x-l};(a.down||e.rows===0)&&(c.cellHeight=i.cellHeight),(e.columns===0||a.across&&!s)&&(c.cellWidth=i.cellWidth),r&&!s&&(c.
x=t.grid.columns),o?c.y=0:t.grid.isRanking||(c.y+=qa(e,t.grid,c.y)),t.view=s&&l>0?{...j(c,t.bounds),x:c.x}:j(c,t.bounds),
t.hover=null,t.focus=za(t.focus,e,t.grid,l)}function Ga(t,e){if(t.columns===0)return 0;for(let n=0;n<t.columns;n+=1){let o=e.
columnKeys.indexOf(t.columnKeys[n]);if(o>=0)return n-o}return 0}function qa(t,e,n){let o=Math.floor(n);if(t.rows===0||t.
rowKeys[o]===e.rowKeys[o])return 0;let s=e.rowKeys.indexOf(t.rowKeys[o]);return s<0?0:s-o}function za(t,e,n,o){if(!t||n.
rows===0||n.columns===0)return null;let s=n.rowKeys.indexOf(e.rowKeys[t.row]);return{row:s<0?q(t.row,0,n.rows-1):s,column:q(
t.column-o,0,n.columns-1)}}var Ya="Arrow keys move from cell to cell, Home and End to the ends, Enter chooses the rank. Plus and minus zoom, bracke\
ts zoom across, 0 shows all, Shift with arrows pans, Escape leaves.",Va="(max-width: 40rem)",Xa=250;function St(t,{part:e,
label:n,layout:o,marks:s,hasMinimap:r,tableCaption:a,tableColumn:l,on:i}){t.dataset.part||(t.dataset.part=e),t.classList.
add("chart");let c=b("p","chart-keys",{id:`${e}-keys`},Ya),f=b("canvas","chart-canvas",{tabindex:"0",role:"application",
"aria-roledescription":"heat map","aria-label":n,"aria-describedby":`${e}-keys`}),d=b("div","chart-stage",{},f),h=b("can\
vas","chart-minimap",{"aria-hidden":"true"}),m=b("p","chart-note"),p=b("div","chart-tools"),g=Kn(s),x=Un(),y=Gn(a,l),k=b(
"div","chart-body",{},d,...r?[h]:[]),T=b("div","chart-foot",{},g.element,m);t.replaceChildren(p,k,T,c,x,y.element);let M=null,
N=null,at=F=>{F.palette!==M&&g.setPalette(M=F.palette),N?.update(F),i.changed(F)},mt=Ro({host:d,canvas:f,tooltip:jn(d),spoken:x,
layout:o,on:{...i,changed:at}});return r&&(N=go(h,mt.show)),{heat:mt,setHeight:F=>{let $t=window.matchMedia(Va).matches?
Xa:F,it=`${Math.min(F,$t)/16}rem`;k.style.height!==it&&(k.style.height=it)},canvas:f,tools:p,stage:d,note:m,body:k,table:y,
destroy:()=>{mt.destroy(),t.replaceChildren(),t.classList.remove("chart")}}}function ee(t,e,n){let o=(r,a,l)=>b("span","\
chart-group",{role:"group","aria-label":`zoom ${r}`},b("span","chart-group-word",{},r),yt("\u2212",`${r}: zoom out`,l),yt(
"+",`${r}: zoom in`,a)),s=[o(e,()=>t.zoomBy(1,1.6),()=>t.zoomBy(1,.625))];return n&&s.push(o(n,()=>t.zoomBy(1.6,1),()=>t.
zoomBy(1/1.6,1))),[...s,yt("all","show all",()=>t.fit())]}var Za=10,Ja=["lost","missing"],ne=[{name:"rank",words:"by rank"},{name:"node",words:"by host"},{name:"worst",words:"wor\
st first"},{name:"flagged",words:"only flagged"}],Ae=new WeakMap;function U(t){if(!Ae.has(t)){let[e,n]=[Qa(t),tl(t)];Ae.
set(t,{known:e,flagged:n,worst:ol(t,e,n)})}return Ae.get(t)}function Qa(t){let{ranks:e}=t,n=e.nodes?.map(E),o=(s,r)=>r==
null?null:s?.[r]??null;return new Map(e.rank.map((s,r)=>[s,{index:r,nodeIndex:e.node?.[r]??-1,node:o(n,e.node?.[r]),role:e.
role?.[r]??null,state:o(e.states,e.state?.[r])}]))}function tl(t){let e=new Map,n=(o,s,r=!0)=>{o!=null&&(!e.has(o)||r&&!e.
get(o).isSure)&&e.set(o,{why:s,isSure:r})};for(let o of t.hangs??[])o.state!=="lost"&&(o.culprits??[]).forEach(s=>n(s,"h\
ang"));for(let o of t.verdicts??[]){if(!o.stands||o.silenced)continue;let s=o.state!=="suspect",r=s?"slow":"suspect";o.scope===
"rank"&&n(o.rank,r,s),o.scope==="host"&&el(t,o.node).forEach(a=>n(a,`${r} host`,s))}return(t.ranks?.state??[]).forEach((o,s)=>{
let r=t.ranks.states[o];Ja.includes(r)&&n(t.ranks.rank[s],r)}),e}function el(t,e){let{rank:n,node:o,nodes:s}=t.ranks;return n.
filter((r,a)=>s[o[a]]===e)}function oe(t,e,n,o,s){let r=e.ranks.map((l,i)=>i),a=l=>e.ranks[l];if(t==="flagged")return r.
filter(l=>o.has(a(l))||a(l)===s);if(t==="node"){let l=e.ranks.map(i=>n.get(i)?.nodeIndex??1/0);return r.sort((i,c)=>l[i]-
l[c]||a(i)-a(c))}if(t==="worst"){let l=nl(e,Za);return r.sort((i,c)=>l[c]-l[i]||a(i)-a(c))}return r}function nl(t,e){let n=t.
ranks.length,[o,s]=[new Float64Array(n),new Uint16Array(n)],r=Math.max(0,t.columns.length-e);for(let a=r*n;a<t.bytes.length;a+=
1)t.bytes[a]!==0&&(o[a%n]+=t.bytes[a],s[a%n]+=1);return o.map((a,l)=>s[l]?a/s[l]:0)}function se(t,e){let[n,o]=[[],new Set];
return e.size===0?{flaggedRows:n,suspectRows:o}:(t.forEach((s,r)=>{let a=e.get(s);a&&(n.push(r),a.isSure||o.add(r))}),{flaggedRows:n,
suspectRows:o})}function ol(t,e,n,o=20){let s=t.slowdowns?.overall??[],{rank:r}=t.ranks,a=kt(t.ranks,s),l=r.map((c,f)=>(n.
has(c)?1e6:0)+(s[f]??-1)),i=r.map((c,f)=>f).filter(c=>l[c]>=0);return i.sort((c,f)=>l[f]-l[c]||c-f),i.slice(0,o).map(c=>({
rank:r[c],slowdown:s[c]??null,isLone:a(c),node:e.get(r[c]).node,state:e.get(r[c]).state,why:n.get(r[c])?.why??null}))}var sl={named:.03,otherwise:.05},rl=100,al=16;function vo(t){let e=ll(t),n=[];for(let o=0;o<e.columns;o+=1){let s=new Uint8Array(
e.rows);for(let r=0;r<e.rows;r+=1)s[r]=nt(e.at(r,o)?.slowdown);n.push(bt(s))}return{...e,levels:n,hot:hl(e,t.heat.pattern)}}
function ll(t){let{cells:e,silent:n}=t.heat,o=il(t),s=new Map,r=(a,l,i)=>{let c=o.placeOf(a,l);s.has(c)||s.set(c,{stage:a,
data:l,slowdown:i,ranks:[]})};for(let[a,l,i]of e)r(a,l,i);for(let[a,l]of n)r(a,l,null);return{...o,base:t.heat.base,placeOfRank:ul(
t,s,o),silent:new Set(n.map(([a,l])=>o.placeOf(a,l))),known:U(t).known,at:(a,l)=>s.get(a*o.columns+l)}}function il(t){let{
stages:e,data_ranks:n}=t.heat,[o,s]=[No(e),No(n)],r=t.heat.by_rank??(!t.ranks.dp&&!t.ranks.pp);return e.length>1||n.length<=
al?{rows:n.length?e.length:0,columns:n.length,count:e.length*n.length,isRanks:r,rowName:a=>r?"ranks":`stage ${e[a]}`,columnName:a=>String(
n[a]),corner:r?"rank":"data rank",placeOf:(a,l)=>o.get(a)*n.length+s.get(l)}:cl(t,n,s,r)}function cl(t,e,n,o){let s=o?fl(
t.ranks):0,r=dl(e.length,s||8),{known:a}=U(t),l=i=>{let c=e[i*r];return r===s?a.get(c)?.node??`rank ${c}`:`${o?"rank":"d\
ata"} ${c}`};return{rows:Math.ceil(e.length/r),columns:r,count:e.length,isRanks:o,rowName:l,columnName:i=>`+${i}`,corner:o?
"rank":"data rank",placeOf:(i,c)=>n.get(c)}}function No(t){return new Map(t.map((e,n)=>[e,n]))}function ul(t,e,{isRanks:n,
placeOf:o}){let{rank:s,pp:r}=t.ranks,a=t.ranks.dp??t.heat.data_of_rank,l=t.slowdowns?.overall??[],i=new Map;return s.forEach(
(c,f)=>{let d=n?o(0,c):o(r?.[f]??0,a?.[f]??0),h=e.get(d);if(!h)return;i.set(c,d),h.ranks.push(c);let m=l[f]??0;(h.rank===
void 0||m>h.worst)&&Object.assign(h,{rank:c,worst:m})}),i}function fl({node:t}){let e=new Map;for(let o of t??[])e.set(o,
(e.get(o)??0)+1);let n=[...e.values()];return n.length>1&&n.slice(0,-1).every(o=>o===n[0])?n[0]:0}function dl(t,e){return t<=
e*12?e:e*Math.max(1,Math.round(Math.sqrt(t*2.5)/e))}function hl(t,e){if(e==="even")return"";let n=[];for(let l=0;l<t.rows;l+=
1)for(let i=0;i<t.columns;i+=1){let c=t.at(l,i);c?.slowdown&&n.push(c)}let o=n.reduce((l,{slowdown:i})=>Math.max(l,i),1),
s=sl[e.startsWith("hot_")?"named":"otherwise"],r=1+Math.max(s,(o-1)/2);return n.filter(({slowdown:l})=>l>=r).sort((l,i)=>i.
slowdown-l.slowdown).slice(0,rl).map(({stage:l,data:i})=>`${l},${i}`).join(";")}var Ne="http://www.w3.org/2000/svg",Ht=4,ml=[{name:"hot_cell",words:"one hot cell",meaning:"its GPU, its host or its dat\
a",isHot:(t,e)=>t===1&&e===2},{name:"hot_row",words:"a hot row",meaning:"an uneven pipeline stage",isHot:t=>t===Ht-1},{name:"\
hot_column",words:"a hot column",meaning:"one data rank is slow in all stages: its host or its data",isHot:(t,e)=>e===2},
{name:"spread",words:"heat everywhere",meaning:"uneven sequences, or pauses on changing ranks",isHot:(t,e)=>(t*3+e*5)%4<
2},{name:"silent",words:"hatched",meaning:"a worker is silent or stuck",isHot:()=>!1,isSilent:(t,e)=>t===1&&e===2},{name:"\
even",words:"even",meaning:"all workers are equally fast",isHot:()=>!1}];function Co(t){let e=new Map(ml.map(a=>[a.name,
pl(a)])),n=b("ul","pattern-legend",{"aria-label":"Pattern legend"},...e.values()),o=b("summary","",{},"What the patterns\
 mean"),s=b("details","pattern-folding",{},o,n);return t.append(s),{update:a=>{for(let[l,i]of e)l===a?i.setAttribute("ar\
ia-current","true"):i.removeAttribute("aria-current")},destroy:()=>s.remove()}}function pl({words:t,meaning:e,isHot:n,isSilent:o}){
let s=b("span","pattern-words",{},b("strong","",{},t),b("span","",{},e));return b("li","pattern-item",{},gl(n,o),s)}function gl(t,e=()=>!1){
let n=document.createElementNS(Ne,"svg"),o=(s,r)=>Object.entries(r).forEach(([a,l])=>s.setAttribute(a,l));o(n,{viewBox:"\
0 0 32 32",class:"pattern-picture","aria-hidden":"true"});for(let s=0;s<Ht*Ht;s+=1){let[r,a]=[Math.floor(s/Ht),s%Ht],l=e(
r,a)?"silent":t(r,a)?"hot":"even",i=document.createElementNS(Ne,"rect");o(i,{x:a*8+.75,y:r*8+.75,width:6.5,height:6.5,rx:1.2,
class:`pattern-cell pattern-${l}`}),n.append(i),l==="silent"&&n.append(wl(a*8,r*8,o))}return n}function wl(t,e,n){let o=document.
createElementNS(Ne,"path");return n(o,{d:`M${t+1.2} ${e+4}l2.8-2.8M${t+1.2} ${e+6.8}l5.6-5.6M${t+4} ${e+6.8}l2.8-2.8`,class:"\
pattern-strokes"}),o}var ve={left:66,top:24,right:2,bottom:4},Ce={most:380,row:44},Ho={step:"Step time if only this worker were as it is / if\
 all took the mean",peers:"Own time of every worker / its peers"},kl="No rank has reported yet.";function Wo(t,e){let n={
cells:null,picture:null,rank:null},o=St(t,{part:"matrix",label:"Slowdown of each worker by pipeline stage and data rank",
layout:ve,marks:["flagged","silent"],hasMinimap:!1,tableCaption:"The slowest workers",tableColumn:"worker",on:{words:c=>xl(
n.cells,c),pick:({row:c,column:f})=>{let d=n.cells.at(c,f)?.rank;d!==void 0&&e.select({rank:d})},changed:({view:c,ratio:f,
grid:d})=>Ol(o.note,L(c,f),d)}}),s=b("p","pattern-sentence",{"data-field":"pattern-text"}),r=b("div","pattern-aside",{},
s);o.body.after(r);let a=Co(r);return{update:(c,f)=>{n.picture!==c&&(n.cells=vo(c));let d=n.picture!==c||n.rank!==f.rank;
if(Object.assign(n,{picture:c,rank:f.rank}),!d)return;let{heat:h}=c;s.textContent=E(h.pattern_text??""),a.update(h.pattern),
t.dataset.pattern=h.pattern,t.dataset.hot=n.cells.hot,t.dataset.silent=h.silent.map(y=>y.join(",")).join(";"),o.table.update(
U(c).worst,y=>Sl(n.cells,y));let m=t.closest(".card")?.querySelector(".card-head p"),p=h.section?`, in ${E(h.section)}`:
"";m&&(m.textContent=`${Ho[h.base]??Ho.peers}${p}`);let{flagged:g}=U(c),x=n.cells.rows?bl(n.cells,f.rank,g):Q;o.setHeight(
Math.min(Ce.most,Math.max(1,x.rows)*Ce.row)+ve.top+ve.bottom),o.stage.dataset.empty=x.rows?"":kl,o.heat.setGrid(x)},destroy:()=>{
r.remove(),o.destroy()}}}function yl(t,e){let n=new Map;for(let[o,{isSure:s}]of e){let r=t.placeOfRank.get(o);r!==void 0&&
n.set(r,s||n.get(r)===!0)}return n}function bl(t,e,n){let{rows:o,columns:s,levels:r}=t;return{...Q,rows:o,columns:s,levels:r,
rowKeys:Array.from({length:o},(a,l)=>t.rowName(l)),columnKeys:Array.from({length:s},(a,l)=>t.columnName(l)),rowName:t.rowName,
columnName:t.columnName,columnLabelRoom:30,corner:t.corner,exactAt:(a,l)=>t.at(a,l)?.slowdown??null,flaggedCells:yl(t,n),
hatched:t.silent,cells:t.count,markedCell:t.placeOfRank.get(e)??null,startCell:t.placeOfRank.get(e)??_l(t),mostCellWidth:96,
mostCellHeight:Ce.row}}function _l({rows:t,columns:e,silent:n,at:o}){if(n.size)return Math.min(...n);let[s,r]=[0,-1/0];for(let a=0;a<
t*e;a+=1){let l=o(Math.floor(a/e),a%e)?.slowdown??-1/0;l>r&&([s,r]=[a,l])}return s}function xl(t,{row:e,column:n,ranks:o}){
let s=t.at(e,n);if(!s)return["no worker","",""];let r=s.rank===void 0?"":ot(s.rank,t.known.get(s.rank)?.node),a=t.isRanks?
r:`stage ${s.stage}, data rank ${s.data}`,l=t.silent.has(e*t.columns+n);return[`${a}: ${l?"silent":Tl(t,s)}`,!t.isRanks&&
r?s.ranks.length>1?`slowest of its ${s.ranks.length} ranks: ${r}`:r:"",l&&t.known.get(s.rank)?.state?`state: ${t.known.get(
s.rank).state}`:"",o>1?"the hottest of the cells under one pixel":""]}function Tl({base:t},{slowdown:e}){return t==="ste\
p"?Fn(e):ft(e)}function Sl(t,e){let n=t.placeOfRank.get(e),o=n===void 0?null:t.at(Math.floor(n/t.columns),n%t.columns);return!o||
t.isRanks?"not reported":`stage ${o.stage}, data rank ${o.data}`}function Ol(t,{rows:e,columns:n},o){let s=e*n,r=s>1&&o.
rows?`Each mark shows the hottest of ${s} workers.`:"";t.textContent!==r&&(t.textContent=r)}var He=["run","group","section","rank"];function Lo(t){let e=new URLSearchParams(t.replace(/^#/,"")),n={};for(let o of He)
n[o]=e.has(o)?e.get(o):null;return n.rank=/^\d{1,9}$/.test(n.rank??"")?Number(n.rank):null,n}function Wt(t){let e=new URLSearchParams;
for(let o of He)t[o]!==null&&t[o]!==void 0&&e.set(o,t[o]);let n=e.toString();return n?`#${n}`:""}function Ml(t,e){let n={
...t};"run"in e&&e.run!==t.run&&Object.assign(n,{group:null,section:null,rank:null}),"group"in e&&e.group!==t.group&&Object.
assign(n,{section:null,rank:null});for(let o of He)o in e&&(n[o]=e[o]??null);return n}function ht(t,e){if(e.section!==null&&
e.section!==void 0)return e.section;let{section:n,peers:o}=t?.answer??{};return!n||!o?"":(t.sections??[]).some(({name:s})=>s===
n)?n:""}function Io(t,e){let n=Lo(t.location.hash),o=()=>{n=Lo(t.location.hash),e(n)};return t.addEventListener("popstat\
e",o),t.addEventListener("hashchange",o),{chosen:()=>n,select(s){let r=Ml(n,s);if(Wt(r)===Wt(n))return;let a=r.run!==n.run;
n=r;let l=Wt(n)||t.location.pathname+t.location.search;a?t.history.pushState(null,"",l):t.history.replaceState(null,"",l),
e(n)}}}var Po=100;function Do(t,e){let n="",o=!1,s=0,r={runs:null,picture:null},a=()=>$(t,h()),l=()=>$l(r.runs?.runs??[],n);function i(g){
if(o===g)return;o=g,n="";let x=l().map(y=>y.run_id);s=Math.max(0,x.indexOf(r.picture?.run.run_id)),a(),o&&t.querySelector(
"input").focus()}function c(){i(!1),t.querySelector(".run-button").focus()}function f(g){c(),e.select({run:g.run_id})}function d(g){
let x=l().slice(0,Po),y={ArrowDown:1,ArrowUp:-1,PageDown:10,PageUp:-10};if(g.key in y)s=Math.min(x.length-1,Math.max(0,s+
y[g.key])),a(),t.querySelector("[aria-selected=true]")?.scrollIntoView({block:"nearest"});else if(g.key==="Enter")x[s]&&
f(x[s]);else if(g.key==="Escape")c();else return;g.preventDefault(),g.stopPropagation()}function h(){let g=r.picture?.run??
null;return[u("button",{type:"button",class:"run-button","aria-haspopup":"listbox","aria-expanded":String(o),onclick:()=>i(
!o)},u("span",{class:"visually-hidden"},"Run: "),g?Fo(g):"Choose a run",El(r.runs),u("span",{"aria-hidden":"true"},"\u25BE")),
o?m():null,Cl(g,e),Nl(r.runs?.runs.find(x=>x.run_id===g?.run_id))]}function m(){let g=l(),x=g.slice(0,Po);return u("div",
{class:"popup",onkeydown:d,key:"popup"},u("input",{type:"search",role:"combobox","aria-label":"Find a run by name, job o\
r state","aria-expanded":"true","aria-controls":"run-list","aria-activedescendant":x[s]?`run-${s}`:!1,placeholder:"Find \
a run",autocomplete:"off",spellcheck:"false",value:n,oninput:y=>{n=y.target.value,s=0,a()}}),u("ul",{role:"listbox",id:"\
run-list","aria-label":"Runs"},x.map((y,k)=>p(y,k,k===s,f))),u("p",{class:"popup-note",role:"status"},Rl(g.length,x.length,
n)))}function p(g,x,y,k){let T=w(g.received_at_s)?r.runs.now_s-g.received_at_s:null;return u("li",{role:"option",id:`run\
-${x}`,key:g.run_id,"aria-selected":String(y),"data-tone":g.tone,onclick:()=>k(g)},u("span",{class:"tone-mark",title:At(
g.tone),"aria-hidden":"true"},Nt(g.tone)),u("span",{class:"visually-hidden"},`${At(g.tone)}: `),u("span",{class:"option-\
name"},Fo(g)),u("span",{class:"option-says",dir:"auto"},g.headline),u("span",{class:"option-size"},Al(g,T),vl(g)))}return document.
addEventListener("pointerdown",g=>{o&&!t.contains(g.target)&&i(!1)}),t.addEventListener("focusout",g=>{o&&g.relatedTarget&&
!t.contains(g.relatedTarget)&&i(!1)}),{update(g,x,y){r={runs:y,picture:g},t.hidden=!y||y.runs.length===0,a()}}}function $l(t,e){
let n=e.toLowerCase().split(/\s+/).filter(Boolean);return t.filter(o=>{let s=`${o.run_id} ${o.job??""} ${o.state??""} ${o.
tone} ${o.headline??""}`;return n.every(r=>s.toLowerCase().includes(r))})}function Fo(t){let e=t.job&&t.job!==t.run_id;return[
_(e?t.job:t.run_id,"run-job"),e?_(t.run_id,"run-id"):null]}function El(t){let e=(t?.runs.length??0)-1;return e<=0?null:u(
"span",{class:"run-count"},`+${O(e)}`,u("span",{class:"visually-hidden"}," more"))}function Rl(t,e,n){return t===0?"No m\
atching run":t>e?`${t-e} more: type to filter`:n?`${V(t,"run")} found`:""}function Al(t,e){let n=w(t.world_size)?V(t.world_size,
"rank"):"";return t.is_live?w(e)?`${n}, ${C(e)} ago`:n:`${n}, from history`}function Bo(t){return/^https?:\/\//.test(t?.
page_url??"")?`${t.page_url}/${Wt({run:t.run_id})}`:null}function Nl(t){let e=Bo(t);return e===null?null:u("a",{class:"s\
hard-link",key:"shard",href:e,title:"Its alerts and decisions are there"},u("span",{class:"visually-hidden"},"Open the p\
age of its shard, "),`on ${t.collector??t.page_url}`)}function vl(t){let e=Bo(t);return e===null?null:[", ",u("a",{class:"\
shard-link",href:e,tabindex:"-1",onclick:n=>n.stopPropagation()},`on ${t.collector??t.page_url}`)]}function Cl(t,e){let n=t?.
groups??[];return n.length<2?null:u("label",{class:"group-picker",key:"group"},u("span",{},"Group"),u("select",{value:t.
group,onchange:o=>e.select({group:o.target.value})},n.map(o=>u("option",{value:o,selected:o===t.group,key:o},o||"(defaul\
t)"))))}var re=160,Ko=34;function jo(t,e){let n=t.filter(w);if(n.length===0)return u("span",{class:"muted"},"no past");let o=Math.
min(.9,...n),s=Math.max(1.2,...n),r=i=>t.length<2?re:i/(t.length-1)*re,a=i=>2+(1-(i-o)/(s-o))*(Ko-4),l=n[n.length-1];return u(
"svg",{class:"spark",viewBox:`0 0 ${re} ${Ko}`,preserveAspectRatio:"none",role:"img","aria-label":`${e}: from ${H(n[0])}\
 to ${H(l)}, at most ${H(Math.max(...n))}`},u("line",{class:"spark-one",x1:0,x2:re,y1:a(1).toFixed(1),y2:a(1).toFixed(1)}),
u("path",{class:"spark-line",d:Hl(t,r,a)}))}function Hl(t,e,n){let o=[],s=!1;return t.forEach((r,a)=>{if(w(r)){let l=`${e(
a).toFixed(1)} ${n(r).toFixed(1)}`;o.push(s?`L${l}`:`M${l}h0.01`)}s=w(r)}),o.join("")}var Uo=5,Wl={confirmed:"bad",flapping:"bad",suspect:"watch",recovered:"good",ok:"good"};function Go(t,e){return Ft(t,(n,o,s)=>Ll(
n,o,s,e))}function Ll(t,e,n,o){let s=t.verdicts||[],r=e?s:s.slice(0,Uo),a=t.verdicts_left_out||0;return[s.length?u("ul",
{class:"cards"},r.map(l=>We(l,t,o))):K("No rank, host or stage has had a slow verdict."),gt(s.length,Uo,e,n),a?u("p",{class:"\
nothing",key:"left"},`${O(a)} more lose less`):null,Fl(t),Bl(t)]}function We(t,e,n){let o=t.stands?Wl[t.state]||"unknown":
"good";return u("li",{key:t.subject_id,"data-tone":o,"data-state":t.state},u("span",{class:"badge"},t.state),u("div",{},
u("p",{class:"card-title"},Il(t,n),t.silenced?u("span",{class:"label"},"silenced"):null,t.pages?u("span",{class:"label s\
trong"},e.run.mode==="observe"?"would page":"pages"):null),u("p",{dir:"auto"},X(I(t.sentence))),u("p",{class:"card-foot"},
Pl(t,e).map(s=>u("span",{},_(s))))))}function Il(t,e){return t.scope==="rank"&&w(t.rank)?[Z(t.rank,e),t.node?[" on ",_(t.
node)]:null]:t.scope==="host"?["host ",_(t.node)]:t.scope==="role"?["role ",_(t.role)]:"the whole run"}function Pl(t,e){
let n=[t.cause_text||P(t.cause)];t.section&&n.push(`in ${t.section}`),w(t.slowdown)&&n.push(`${H(t.slowdown)} as long as\
 ${Kt(t,"")}`),w(t.since_step)&&n.push(`since step ${O(t.since_step)}`),w(t.since_s)&&n.push(W(t.since_s,e.now_s));let o=t.
stands?t.gpu_seconds_lost_per_hour:null;return w(o)&&o>=1&&n.push(`${Y(o,e.run.on_gpu)} per hour`),w(t.n_peers)&&t.n_peers>
0&&n.push(V(t.n_peers,"peer")),w(t.confidence)&&t.stands&&n.push(`${G(t.confidence)} sure`),n}function Fl(t){let e=[...t.
decisions||[]].reverse().slice(0,20);return e.length?u("div",{class:"decisions",key:"decisions"},u("h3",{},"Decisions"),
u("ul",{class:"lines"},e.map(n=>Dl(n,t.now_s)))):null}function Dl(t,e){let n=t.until_ns?` until ${W(t.until_ns/1e9,e)}`:
"",o=t.by?[" by ",_(t.by)]:null;return u("li",{class:t.is_in_force?"":"muted"},u("strong",{},t.action)," ",_(t.subject_id),
`${n}: `,_(t.reason),o,`, ${W(t.at_ns/1e9,e)}`,t.is_in_force?null:" (no longer in force)")}function Bl(t){let e=t.maintenance||
[];return e.length?u("div",{class:"decisions",key:"maintenance"},u("h3",{},"Under maintenance: lost ranks there do not p\
age"),u("ul",{class:"lines"},e.map(n=>u("li",{key:n.node},u("strong",{},_(n.node)),` until ${W(n.until_s,t.now_s)}: `,_(
n.reason),n.by?[" by ",_(n.by)]:null)))):null}var Kl=1.1,jl=["auto","off"];function qo(t,e){let n=null,o=null;function s(){e.select({rank:null})}function r(a){if(a===
o)return;o=a;let{activeElement:l}=document,i=t.contains(l);t.hidden=a===null,document.body.classList.toggle("has-side-pa\
nel",a!==null),a!==null?(i||(n=l),t.querySelector("h2").focus({preventScroll:!0}),t.scrollTop=0):n?.isConnected&&(i||l===
document.body)&&n.focus({preventScroll:!0})}return document.addEventListener("keydown",a=>{a.key==="Escape"&&o!==null&&!a.
defaultPrevented&&s()}),document.addEventListener("focusin",()=>{window.requestAnimationFrame(()=>{o!==null&&Ul(document.
activeElement,t)&&s()})}),{update(a,l,i,c){let f=a?l.rank:null;f!==null&&$(t,Gl(a,l,i,{...e,close:s,isSaved:c})),r(f)}}}
function Ul(t,e){if(!t||t===document.body||e.contains(t))return!1;let[n,o]=[t,e].map(s=>s.getBoundingClientRect());return n.
left>=o.left-1&&n.bottom>o.top}function Gl(t,e,n,o){let s=n!==null&&n.rank===e.rank;return[u("header",{class:"panel-head",
key:"head"},u("h2",{tabindex:"-1"},`Rank ${O(e.rank)}`),u("button",{type:"button",class:"icon-button","aria-label":"Clos\
e",onclick:o.close},"\u2715")),s?zl(t,n,o):K(ql(t,e.rank,o.isSaved))]}function ql(t,e,n){return t.ranks.rank.includes(e)?
n?"This report has no details of this rank; the collector's page does.":"No further data yet.":"Unknown rank."}function zl(t,e,n){
return[Yl(e),Zl(e,n),ei(e),ni(t,e,n),si(e),e.commands?.length?u("section",{key:"commands"},u("h3",{},"To run"),e.commands.
map(o=>tt(o,e.page_url))):null]}function Yl(t){let{mark:e,tone:n}=dt(t.state),o=Object.entries(t.parallel||{}).map(([r,a])=>`${r}\
 ${a}`),s=[["State",u("span",{"data-rank-state":n},u("span",{class:"state-mark","aria-hidden":"true"},e),` ${t.state??"u\
nknown"}`)],["Host",t.node?_(t.node):null],["Role",t.role?_(t.role):null],["Place",o.length?o.join(", "):null],["Step",w(
t.step)?O(t.step):null],["Heartbeat",w(t.heartbeat_age_s)?`${C(t.heartbeat_age_s)} ago`:null],["Progress",w(t.progress_age_s)?
`${C(t.progress_age_s)} ago`:null],["Open section",t.open_section?_(t.open_section):null],["GPU",Vl(t.gpu)]].filter(([,r])=>r);
return u("dl",{class:"pairs",key:"where"},s.map(([r,a])=>u("div",{key:r},u("dt",{},r),u("dd",{},a))))}function Vl(t){return!t||
!(t.model||t.uuid||t.tier)?null:(t.model||t.uuid||zo(t)?[t.model,t.uuid,Xl(t)]:["none reported"]).filter(Boolean).map(o=>u(
"div",{key:o},_(o)))}function zo({tier:t}){return!!t&&t!=="off"}function Xl(t){if(!t.tier)return null;let e=t.reason&&!jl.
includes(t.reason)?`: ${P(t.reason)}`:"";return zo(t)?`timed by ${P(t.tier)}${e}`:`not timed${e}`}function Zl(t,e){let n=t.
sections||[];if(!n.length)return u("section",{key:"sections"},K("No scored window includes this rank yet."));let o=Math.
max(...n.flatMap(s=>[s.step_s??0,s.peers_step_s??0]));return u("section",{key:"sections"},u("h3",{},"Its sections next t\
o its peers"),u("ul",{class:"section-rows"},n.map(s=>Jl(s,o,t.history,e))),u("p",{class:"nothing"},"Upper bar: this rank\
, time per step. Lower bar: median of its role. Line: slowdown over the last windows."))}function Jl(t,e,n,o){let s=t.kind!==
"wait",r=t.n_peers===0,a=s&&w(t.slowdown)&&t.slowdown>=Kl;return u("li",{key:t.name,"data-tone":a?"bad":!1},u("div",{class:"\
section-head"},u("button",{type:"button",class:"text-link",title:"Show this section over time",onclick:()=>o.select({section:t.
name})},_(t.name)),u("small",{},` ${t.kind??""}`),r?u("small",{},rt):u("strong",{class:"number"},H(t.slowdown),u("small",
{}," its peers"))),u("div",{class:"section-body"},u("div",{class:"section-bars"},B(t.step_s,e,a?"own":"neutral"),u("span",
{class:"number"},v(t.step_s)),r?null:B(t.peers_step_s,e,"others"),r?null:u("span",{class:"number"},v(t.peers_step_s))),r?
null:jo(Ql(n,t.name),`Slowdown of ${t.name}`)),u("p",{class:"card-foot"},ti(t,r).map(l=>u("span",{},l))))}function Ql(t,e){
let n=t?.sections?.indexOf(e)??-1;return n===-1?[]:t.slowdowns[n]}function ti(t,e){let o=[["score",e?null:t.relative_score],
["to its own best",t.individual_score],["GPU",t.gpu_relative],["GPU to its own best",t.gpu_individual]].filter(([,s])=>w(
s)).map(([s,r])=>`${s} ${r.toFixed(2)}`);return w(t.median_s)&&o.push(`median run ${v(t.median_s)}`),o}function ei(t){if(!t.
waits)return null;let{caused_s:e,suffered_s:n}=t.waits,o=Math.max(e??0,n??0);return u("section",{key:"waits"},u("h3",{},
"Waiting"),u("div",{class:"section-bars with-names"},u("span",{},"made others wait"),B(e,o,"culprit"),u("span",{class:"n\
umber"},v(e)),u("span",{},"waited for others"),B(n,o,"victim"),u("span",{class:"number"},v(n))))}function ni(t,e,n){let o=e.
verdicts||[];return u("section",{key:"verdicts"},u("h3",{},"Verdicts"),o.length?u("ul",{class:"cards"},o.map((s,r)=>oi(s,
r,t,n))):K("No slow verdict."))}function oi(t,e,n,o){let s=We({stands:t.state!=="recovered"&&t.state!=="ok",...t},n,o);return{
...s,props:{...s.props,key:e}}}function si(t){let e=Object.entries(t.dropped||{}).filter(([,o])=>o>0);if(!e.length)return null;
let n=e.map(([o,s])=>`${o}: ${O(s)}`);return u("section",{key:"dropped"},u("h3",{},"Lost before it arrived"),u("p",{},_(
n.join(", "))))}var ri=nt(1.1);function Yo(t,e){let n=t?.ranks.indexOf(e)??-1;if(n<0)return"unknown";let{columns:o,bytes:s,ranks:r}=t,a=o.
length;for(;a>0&&s[(a-1)*r.length+n]>=ri;)a-=1;if(a===o.length)return"not slow now";let l=Yt(o[a]),i=o[a].first_step===null?
l:`step ${l}`;return a===0?`${i} or before`:i}var Lt={left:82,top:4,right:0,bottom:24},Le={least:96,most:420,row:26},li="No window has been scored yet: the first one \
closes after some steps.",ii="No rank is flagged.";function Vo(t,e){let n={order:"rank",shown:null,cache:mi(),last:null,
draws:0},o=St(t,{part:"rank-time",label:"Slowdown of each rank in each window of steps",layout:Lt,marks:["flagged"],hasMinimap:!0,
tableCaption:"The slowest ranks of the newest window",tableColumn:"slow since",on:{words:f=>pi(n.shown,f),pick:f=>e.select(
{rank:n.shown.rankAt(f.row)}),changed:f=>wi(t,o,l,n,f)}}),s=()=>n.last&&ui(o,n,...n.last),r=Ct("section",f=>e.select({section:f})),
a=Ct("order of ranks",f=>{n.order=f,s()});a.setOptions(ne,n.order);let l=yt("newest \u25B8","go to the newest window",()=>ki(
o.heat));return o.tools.append(r.element,a.element,...ee(o.heat.actions,"ranks","time"),l),{update:(f,d,h)=>{n.last=[f,d,
h],r.setOptions(ci(f),d.section??""),o.table.update(U(f).worst,m=>Yo(h,m)),s()},counts:()=>({draws:o.heat.it.draws,columnsBuilt:n.
cache.built()}),destroy:o.destroy}}function ci(t){let e=(t.sections??[]).map(({name:n})=>({name:n,words:E(n)}));return[{
name:"",words:"all sections"},...e]}function ui(t,e,n,o,s){let r=o.rank??null,{known:a,flagged:l}=U(n),i=s?oe(e.order,s,
a,l,r):[],c=i.map(g=>s.ranks[g]),f=Re(t.heat.it),d=e.shown,h=d!==null&&d.order!==e.order;f&&!h&&e.order==="worst"&&fi(d?.
keys,c)&&(i.splice(0,i.length,...d.keys.map(g=>s.ranks.indexOf(g))),c.splice(0,c.length,...d.keys)),e.shown={order:e.order,
keys:c,known:a,flagged:l,timeline:s,rankAt:g=>c[g],columns:s?.columns??[]};let m=s&&c.length?di(e,i,r):Q,p=Math.min(Le.most,
Math.max(Le.least,m.rows*Le.row));t.setHeight(p+Lt.top+Lt.bottom),t.body.dataset.large=String(m.rows>100||m.columns>240),
t.stage.dataset.empty=m.rows===0?s?.columns.length?ii:li:"",t.heat.setGrid(m,h)}function fi(t,e){if(!t||t.length!==e.length)
return!1;let n=new Set(t);return e.every(o=>n.has(o))}function di(t,e,n){let{keys:o,timeline:s,flagged:r,known:a}=t.shown,
l=t.cache.levelsOf(s,e,`${t.order}|${o.length}`,o),i=o.indexOf(n),c=s.columns.some(({first_step:m})=>m!==null),f=t.order===
"node",d=m=>a.get(o[m])?.node??"",h=f?o.map((m,p)=>p).filter(m=>m&&d(m)!==d(m-1)):[];return{...Q,rows:o.length,columns:s.
columns.length,levels:l,rowKeys:o,columnKeys:s.columns.map(({seq:m,at_s:p})=>`${m}@${p}`),rowName:m=>f&&d(m)?`${d(m)} \xB7 ${o[m]}`:
`rank ${o[m]}`,columnName:m=>Yt(s.columns[m]),columnLabelRoom:76,corner:c?"step":"time",...se(o,r),selectedRow:i<0?null:
i,rowBreaks:h,columnBreaks:hi(s.columns),hasSlots:!0,isRanking:t.order==="worst",layoutFor:()=>({...Lt,left:f?120:Lt.left}),
mostCellHeight:26,mostCellWidth:90}}function hi(t){let e=[];for(let n=1;n<t.length;n+=1)t[n].seq!==t[n-1].seq+1&&e.push(
n);return e}function mi(){let[t,e,n,o]=[new Map,"",[],0],s=(a,l,i,c)=>{let{run_id:f,group:d,section:h,ranks:m}=a,p=[f,d,
h,m.length,i].join("|"),g=n.length===c.length&&c.every((y,k)=>y===n[k]);(p!==e||!g)&&(t=new Map),[e,n]=[p,c];let x=new Map;
return a.columns.forEach(({seq:y,at_s:k},T)=>{let M=`${y}@${k}`;x.set(M,t.get(M)??r(a,l,T))}),t=x,[...x.values()]},r=(a,l,i)=>{
o+=1;let c=i*a.ranks.length;return bt(Xt(a.bytes,l,c))};return{levelsOf:s,built:()=>o}}function pi(t,{row:e,column:n,byte:o,
ranks:s}){let r=t.rankAt(e),{node:a,state:l}=t.known.get(r)??{},i=t.columns[n],c=t.flagged.get(r)?.why,f=s===1&&gi(t,n,r);
return[`${ot(r,a)}, ${Bn(i)}: ${f?rt:Pn(o)}`,s>1?`the slowest of ${st(s)} in this line`:"",i.first_step===null?"":Vt(i.at_s),
c?`flagged: ${c}`:l??""]}function gi({timeline:t,known:e},n,o){let{ranks:s,bytes:r}=t,a=n*s.length,l=s.map(i=>e.get(i)?.
role);return kt({role:l},r.subarray(a,a+s.length))(s.indexOf(o))}function wi(t,e,n,o,s){let{bounds:r,view:a,grid:l}=s,i=xt(
a,r),{keys:c}=o.shown??{keys:[]},f={firstRank:c[i.firstRow]??"",lastRank:c[i.endRow-1]??"",columns:l.columns,order:o.order};
for(let[y,k]of Object.entries(f))t.dataset[y]!==String(k)&&(t.dataset[y]=k);let d=L(a,s.ratio),h=d.rows>1?` Each line sh\
ows the slowest of ${st(d.rows)}.`:"",m=`${wt(i.endRow-i.firstRow)} of ${st(c.length)}`,p=`${i.endColumn-i.firstColumn} \
of ${l.columns} window${l.columns===1?"":"s"}`,g=c.length?`${m}, ${p}.${h}`:"";e.note.textContent!==g&&(e.note.textContent=
g);let x=te(a,r)||!Tt(a,r).across&&a.x>=0&&i.endColumn===l.columns;n.disabled!==x&&(n.disabled=x)}function ki({it:t,show:e}){
e(j({...t.view,x:360*10},t.bounds))}var Ot={left:82,right:2,bottom:4,top:38,isSlanted:!1},Ie={top:14,longest:170,steepness:Math.SQRT1_2},yi=6.8,Pe={least:60,
most:520,row:26},bi="No window has been scored yet: the first one closes after some steps.",_i="all";function Xo(t,e){let n={
order:"rank",shown:null,last:null},o=St(t,{part:"sections",label:"Slowdown of each rank in each section of the newest wi\
ndow",layout:Ot,marks:["flagged"],hasMinimap:!0,tableCaption:"The slowest ranks of the newest window, all sections toget\
her",tableColumn:"slowest in",on:{words:l=>Ri(n.shown,l),pick:({row:l,column:i})=>{let c=i===0?"":n.shown.columns[i].name;
e.select({rank:n.shown.keys[l],section:c})},changed:l=>Ai(t,o,n,l)}}),s=()=>n.last&&Ti(o,n,...n.last),r=Ct("order of ran\
ks",l=>{n.order=l,s()});return r.setOptions(ne,n.order),o.tools.append(r.element,...ee(o.heat.actions,"ranks")),{update:(l,i)=>{
n.last=[l,i],s(),o.table.update(U(l).worst,c=>$i(n.shown,c))},destroy:o.destroy}}function xi(t,e){let n=t.ranks.rank.length,
{overall:o,by_section:s}=t.slowdowns??{},r=(f,d,h)=>({name:f,words:E(f),kind:E(d),values:h,bytes:En(h,n),isAlone:kt(t.ranks,
h)}),a=t.sections??[],l=a.map(({name:f,kind:d},h)=>r(f,d,s?.[h]??[])),i=({name:f,kind:d})=>d!=="wait"||f===e,c=a.some(i)?
l.filter((f,d)=>i(a[d])):l;return[r(_i,"all compute and data sections",o??[]),...c]}function Ti(t,e,n,o){let s=e.shown,r=s?.
picture===n&&s.section===o.section&&s.order===e.order&&e.order!=="flagged";e.shown=r?s:Si(n,e.order,o);let{keys:a,hasData:l}=e.
shown,i=l&&a.length?Oi(e.shown,o):Q,c=Math.min(Pe.most,Math.max(Pe.least,i.rows*Pe.row)),{top:f,bottom:d}=i.layoutFor?.(
t.stage.clientWidth/J())??Ot;t.setHeight(c+f+d),t.body.dataset.large=String(i.rows>100),t.stage.dataset.empty=i.rows===0?
l?"No rank is flagged.":bi:"",t.heat.setGrid(i,s!==null&&s.order!==e.order)}function Si(t,e,n){let o=xi(t,n.section),{known:s,
flagged:r}=U(t),a={ranks:t.ranks.rank,columns:[{}],bytes:o[0].bytes},l=oe(e,a,s,r,n.rank??null);return{picture:t,section:n.
section,order:e,places:l,columns:o,known:s,flagged:r,hasData:o.some(({bytes:i})=>i.some(Boolean)),keys:l.map(i=>a.ranks[i]),
levels:o.map(({bytes:i})=>bt(Xt(i,l)))}}function Oi({keys:t,places:e,columns:n,levels:o,flagged:s,known:r,order:a},l){let i=t.
indexOf(l.rank??null),c=l.section?n.findIndex(({name:d},h)=>h>0&&d===l.section):0,f=d=>r.get(t[d])?.node??"";return{...Q,
rows:t.length,columns:n.length,levels:o,rowKeys:t,columnKeys:n.map(({name:d},h)=>`${h}:${d}`),rowName:d=>a==="node"&&f(d)?
`${f(d)} \xB7 ${t[d]}`:`rank ${t[d]}`,columnName:d=>n[d].words,columnKind:d=>d===0?"own work":n[d].kind,exactAt:(d,h)=>Mi(
n[h],e[d]),...se(t,s),selectedRow:i<0?null:i,selectedColumn:c<0?null:c,columnBreaks:[1],hasNamesOnTop:!0,layoutFor:d=>Ei(
n,d,a==="node"),mostCellWidth:240,mostCellHeight:26}}function Mi({values:t,isAlone:e},n){return e(n)?null:t[n]}function $i({
picture:t,columns:e},n){let o=t.ranks.rank.indexOf(n),s=e.slice(1).filter(({kind:r,isAlone:a})=>r!=="wait"&&!a(o)).map(({
words:r,values:a})=>({words:r,slowdown:a[o]??null})).filter(({slowdown:r})=>r!==null).sort((r,a)=>a.slowdown-r.slowdown);
return s.length?`${s[0].words}, ${ft(s[0].slowdown)}`:"unknown"}function Ei(t,e,n){let o=n?120:Ot.left,s=Math.max(8,...t.
map(({words:l})=>l.length))*yi+4;if((e-o-Ot.right)/t.length>=s)return{...Ot,left:o};let a=Math.min(Ie.longest,s)*Ie.steepness;
return{...Ot,left:o,top:Ie.top+a,right:a*.9,isSlanted:!0}}function Ri({keys:t,places:e,columns:n,known:o,flagged:s},{row:r,
column:a,ranks:l}){let i=t[r],{words:c,kind:f,values:d,isAlone:h}=n[a],p=l===1&&h(e[r])?rt:ft(d[e[r]]),g=a===0?"all sect\
ions":c;return[`${ot(i,o.get(i)?.node)}, ${g}: ${p}`,a===0?"":`${f} section`,l>1?`the slowest of ${st(l)} in this line`:
"",s.has(i)?`flagged: ${s.get(i).why}`:""]}function Ai(t,e,n,{view:o,bounds:s,ratio:r,grid:a}){let l=xt(o,s),i=a.rows?n.
shown.keys:[],c={firstRank:i[l.firstRow]??"",lastRank:i[l.endRow-1]??"",columns:a.columns};for(let[m,p]of Object.entries(
c))t.dataset[m]!==String(p)&&(t.dataset[m]=p);let{rows:f}=L(o,r),d=f>1?` Each line shows the slowest of ${st(f)}.`:"",h=i.
length?`${wt(l.endRow-l.firstRow)} of ${st(i.length)}.${d}`:"";e.note.textContent!==h&&(e.note.textContent=h)}function De(t,e){let n=new URLSearchParams;for(let[s,r]of Object.entries(e))r!=null&&n.set(s,r);let o=n.toString();return o?
`${t}?${o}`:t}function Zo(t){let e=new Map;return{forget:()=>e.clear(),async get(n,o,s=!0){let r=De(n,o),a=e.get(r),l=await Ni(
t,r,a?.etag);if(l.status===304&&a)return{body:a.body,isNew:!1,problem:null};if(l.status===401)throw Object.assign(new Error(
"no token"),{needsLogin:!0});if(l.status>=400&&l.status<500)return{body:null,isNew:!0,problem:await Fe(l)};if(!l.ok)throw await vi(
l);let i=await l.json(),c=l.headers.get("ETag");return e.delete(r),c&&s&&e.set(r,{etag:c,body:i}),e.size>24&&e.delete(e.
keys().next().value),{body:i,isNew:!0,problem:null}},async login(n){try{let o=await t.fetch("v1/login",{method:"POST",headers:{
"Content-Type":"application/json"},body:JSON.stringify({token:n}),cache:"no-store",credentials:"same-origin"});return o.
ok?null:await Fe(o)}catch{return"The collector does not respond."}}}}async function Ni(t,e,n){let o=new AbortController,
s=t.later(()=>o.abort(),2e4);try{return await t.fetch(e,{headers:n?{"If-None-Match":n}:{},cache:"no-store",credentials:"\
same-origin",signal:o.signal})}finally{t.clear(s)}}async function vi(t){let e=await Fe(t);return Object.assign(new Error(
e),{told:e})}async function Fe(t){try{return String((await t.json()).error)}catch{return`The collector refuses this with\
 status ${t.status}.`}}function Jo(){return{fetch:(t,e)=>window.fetch(t,e),openStream:t=>new EventSource(t),queueForStream:t=>Ci(navigator.locks,
t),now_ms:()=>Date.now(),later:(t,e)=>window.setTimeout(t,e),clear:t=>window.clearTimeout(t),random:()=>Math.random(),isHidden:()=>document.
hidden,onVisible:t=>document.addEventListener("visibilitychange",t)}}function Ci(t,e){let n=new AbortController,o=!1,s=()=>{},
r=new Promise(l=>{s=l}),a=()=>{if(!(o||n.signal.aborted))return o=!0,e(),r};for(let l=1;t&&l<=3;l+=1)t.request(`otel-str\
aggler stream ${l}`,{signal:n.signal},a).catch(()=>{});return()=>{n.abort(),s()}}function Qo(t,e,n){let o=t.openStream(e),s=!0,r=()=>{s=!1,o.close()},a=l=>{o.addEventListener(l,i=>{let c=Hi(i.data);s&&
c!==null&&n[l](c)})};return o.addEventListener("open",()=>s&&n.opened()),a("snapshot"),a("runs"),o.addEventListener("err\
or",()=>{s&&(r(),n.lost())}),{close:r}}function Hi(t){try{return JSON.parse(t)}catch{return null}}var Wi=3e3,Li=6e4;function ts(t,e){let n=null,o=null,s=!1,r=!1,a=null,l=null,i=null;function c(){t.clear(i),o=Qo(t,n,{opened:()=>s=
!0,runs:e.runs,snapshot:e.snapshot,lost:f})}function f(){if(o=null,s)return e.lost();i=t.later(c,Li)}function d(){l=t.later(
()=>{s||(e.ask(),d())},Wi)}function h(){r=!0,n!==null&&c()}function m(){o?.close(),o=n=null,s=!1,t.clear(l),t.clear(i)}return{
stop:m,listen(p){m(),n=p,r?c():a??=t.queueForStream(h),d()},rest(){m(),a?.(),a=null,r=!1}}}function ns(t){return{runs:null,picture:null,timeline:null,rank:null,problem:null,connection:{state:t,since_ms:Date.now(),
retry_ms:null,told:null,clock_s:0}}}function os(){let t=document.getElementById("straggler-data");return t?Ii(JSON.parse(
t.textContent)):Bi()}function Ii(t){let e=ns("saved");return e.runs=t.runs,e.picture=t.run&&{...t.run,run:{...t.run.run,
groups:[t.run.run.group]}},{start(n,o){this.look=s=>{let r=(t.timelines||{})[ht(e.picture,s)];e.timeline=r?fe(r):null,e.
rank=(t.ranks||{})[String(s.rank)]||null,n({...e})},this.look(o)},look(){},retry(){},stop(){}}}var Pi=15e3,Fi=500,es=15e3,
Di=6;function Bi(t=Jo()){let e=Zo(t),n=ns("connecting"),o=new Map,s={},r=()=>{},a=null,l=new Map,i=0,c=null,f=null,d=-1/0,
h=!1,m=!1,p=0,g=null,x=ts(t,{runs:F,snapshot:S=>{if(N(S.now_s),a===null)return F();if(S.snapshot===n.picture?.snapshot)return y();
Ke()},ask:()=>a===null?F():Ke(),lost:T}),y=()=>r({...n,connection:{...n.connection}});function k(S){n.connection.state!==
S&&Object.assign(n.connection,{state:S,since_ms:t.now_ms()})}function T(S){if(x.stop(),S?.needsLogin)return M();i+=1;let A=Math.
min(Pi,Fi*2**Math.min(i,8))*(.5+.5*t.random());k("reconnecting"),n.connection.told=S?.told??null,n.connection.retry_ms=t.
now_ms()+A,t.clear(c),c=t.later(lt,A),y()}function M(){t.clear(c),Object.assign(n.connection,{retry_ms:null,told:null}),
k("locked"),y()}function N(S){i=0,Object.assign(n.connection,{retry_ms:null,told:null}),typeof S=="number"&&(n.connection.
clock_s=S-t.now_ms()/1e3),k(Ki(n.picture)?"ended":"live")}function at(){e.forget(),o.clear(),n.rank=null}function mt({collector:S,
started_at_s:R}){let A=l.get(S);return l.set(S,R),A!==void 0&&A!==R}async function lt(){t.clear(c);let S=i;try{await Mt(),
$t(),await pt()}catch(R){i=S,T(R)}}async function Mt(){let S=await e.get("v1/runs",{});if(S.body===null)return N(null);mt(
S.body)&&at(),n.runs=S.body,N(S.body.now_s)}function F(){It(Mt().then(()=>it()===a?y():Be()))}function $t(){a=it(),t.isHidden()||
x.listen(De("v1/events",{run:a}))}function it(){return s.run??n.runs?.runs[0]?.run_id??null}function Be(){return $t(),pt()}
function It(S){S.catch(T)}function Ke(){if(f!==null||t.isHidden())return;let S=1e3*(n.picture?.next_look_s??1),R=Math.max(
0,d+S-t.now_ms());f=t.later(()=>{f=null,It(pt())},R)}async function pt(){if(h){m=!0;return}h=!0;try{do m=!1,await is();while(m)}finally{
h=!1}}async function is(){let S=p;d=t.now_ms();let R=it();if(R===null)return n.picture=null,y();let A=await e.get("v1/ru\
n",{run:R,group:s.group});if(S!==p)return m=!0;if(n.problem=A.problem,A.problem)return Object.assign(n,{picture:null,timeline:null,
rank:null}),y();mt(A.body)&&(at(),await Mt()),n.picture=A.body,N(A.isNew?A.body.now_s:null);let z={run:A.body.run.run_id,
group:A.body.run.group},{collector:et}=A.body,[ct,Et]=await Promise.all([cs(z,et),us(z)]);return S!==p?m=!0:(Object.assign(
n,{timeline:ct,rank:Et}),y())}async function cs(S,R){let A={...S,section:ht(n.picture,s)},z=JSON.stringify([R,A]),et=o.get(
z)??null,ct=n.picture.timeline?.last;if(ct==null)return null;let Et=et?.last_seq??null;if(Et!==null&&Et>=ct)return et.timeline;
let Pt=await e.get("v1/timeline",{...A,after:Et},!1);if(Pt.problem||!Pt.body)return et?.timeline??null;let Ge=fe(Pt.body),
qe=et?Rn(et.timeline,Ge):Ge;return o.delete(z),o.set(z,{timeline:qe,last_seq:Pt.body.last??ct}),o.size>Di&&o.delete(o.keys().
next().value),qe}async function us(S){return s.rank===null||s.rank===void 0?null:(await e.get("v1/rank",{...S,rank:s.rank})).
body}function je(){return["reconnecting","locked"].includes(n.connection.state)}function Ue(){t.later(Ue,es),!je()&&(t.isHidden()?
fs():F())}function fs(){let S=()=>{let R=n.runs?.runs.find(({run_id:z})=>z===it()),A=g;return g=`${R?.tone} ${R?.headline}`,
g!==A};It(Mt().then(()=>S()&&pt()))}function ds(){if(g=null,t.isHidden())return x.rest();if(je())return lt();$t(),It(pt())}
return{start(S,R){return r=S,s=R,t.onVisible(ds),t.later(Ue,es),lt()},look(S){let R=s;s=S,p+=1;let{state:A,told:z}=n.connection;
return A==="locked"?void 0:A==="reconnecting"?z?lt():void 0:((R.run??null)===(S.run??null)?pt():Be()).catch(T)},retry:()=>lt(),
async login(S){let R=await e.login(S);return R===null&&await lt(),R},stop(){x.rest(),t.clear(c),t.clear(f)}}}function Ki(t){
return t!==null&&(t.run.finished_at_s!==null||!t.run.is_live)}var ss="otel-straggler-theme";function rs(t,e){let n=document.documentElement,o=window.matchMedia("(prefers-color-scheme\
: dark)"),s=ji(),r=()=>{let a=s||(o.matches?"dark":"light"),l=a==="dark"?"light":"dark";n.dataset.theme=a,t.textContent=
a==="dark"?"\u2600":"\u263E",t.setAttribute("aria-label",`Change to ${l} colours`),t.title=`Change to ${l} colours`,e(a)};
t.addEventListener("click",()=>{s=n.dataset.theme==="dark"?"light":"dark",Ui(s),r()}),o.addEventListener("change",r),r()}
function ji(){try{let t=window.localStorage.getItem(ss);return t==="dark"||t==="light"?t:null}catch{return null}}function Ui(t){
try{window.localStorage.setItem(ss,t)}catch{}}var as={wide:8,narrow:4},Gi="(max-width: 40rem)";function ls(t,e){return Ft(t,(n,o,s)=>qi(!ue(n)&&n.waits||[],o,s,e))}function qi(t,e,n,o){
if(!t.length)return K("No rank has waited for another yet.");let s=globalThis.matchMedia?.(Gi).matches?as.narrow:as.wide,
r=e?t:t.slice(0,s),a=Math.max(...t.flatMap(l=>[l.caused_s??0,l.suffered_s??0]));return[u("table",{class:"rows waits"},u(
"caption",{class:"visually-hidden"},"Seconds waited since the start, by rank"),u("thead",{},u("tr",{},u("th",{scope:"col"},
"Rank"),u("th",{scope:"col",colspan:"2",class:"to-left"},u("span",{"aria-hidden":"true"},"\u25C2 "),"waited for others"),
u("th",{scope:"col",colspan:"2"},"made others wait",u("span",{"aria-hidden":"true"}," \u25B8")))),u("tbody",{},r.map(l=>zi(
l,a,o)))),gt(t.length,s,e,n)]}function zi(t,e,n){let o=(t.caused_s??0)>(t.suffered_s??0);return u("tr",{key:t.rank,"data\
-part-in-it":o?"culprit":"victim"},u("th",{scope:"row",class:"who"},Z(t.rank,n),t.node?[" ",u("small",{},_(t.node))]:null),
u("td",{class:"number"},w(t.suffered_s)?v(t.suffered_s):""),u("td",{class:"half to-left"},B(t.suffered_s,e,"victim")),u(
"td",{class:"half"},B(t.caused_s,e,"culprit")),u("td",{class:"number to-start"},w(t.caused_s)?v(t.caused_s):""))}var Yi=9,Vi=5,Xi=14;function Zi(){let t=os(),e=null,n=document.documentElement.dataset.theme,o=!1,s=null,r=Io(window,f=>{
let d=ht(e?.picture,f);d!==s&&ut(`Since when: ${d||"all sections"}`),s=d,c(),t.look(f)});s=ht(null,r.chosen());let a={select:r.
select,retry:t.retry,login:t.login},l=Qi(a);function i(){o=!1,e&&ec(l,e,tc(e,r.chosen(),n))}function c(){if(document.hidden)
return i();o||(o=!0,window.requestAnimationFrame(i))}Ji(document.querySelector(".top-bar")),rs(ae("theme"),f=>{n=f,c()}),
t.start(f=>{e=f,c()},r.chosen())}function Ji(t){let e=()=>document.documentElement.style.setProperty("--bar-height",`${t.
offsetHeight}px`);new ResizeObserver(e).observe(t),e()}function Qi(t){let e=(n,o)=>n(ae(o),t);return{alerts:e(nn,"alerts"),
announcer:_n(),answer:e(kn,"answer"),connection:xn(ae("connection"),ae("notice"),t),figures:e(Tn,"figures"),firstSteps:e(
Sn,"first-steps"),ledger:e(Mn,"ledger"),liveness:e(so,"liveness"),login:e(ro,"login"),matrix:e(Wo,"matrix"),picker:e(Do,
"picker"),rank:e(qo,"rank"),rankTime:e(Vo,"rank-time"),sectionHeat:e(Xo,"sections"),verdicts:e(Go,"verdicts"),waits:e(ls,
"waits")}}function ae(t){return document.querySelector(`[data-part="${t}"]`)}function tc(t,e,n){let o=t.picture?.run;return{
run:o?.run_id??e.run,group:o?.group??e.group,section:ht(t.picture,e),rank:e.rank,theme:n}}function ec(t,e,n){let{picture:o,
runs:s,timeline:r,rank:a,connection:l,problem:i}=e;t.connection.update(o,n,l,i,s?.history_problem,s?.problems),t.login.update(
l),t.picker.update(o,n,s),t.firstSteps.update(o,n,s),nc(document.querySelector("[data-part=charts]"),o);let c=["answer",
"figures","ledger","waits","liveness","alerts","verdicts"];for(let f of c)t[f].update(o,n);o&&(t.matrix.update(o,n),t.sectionHeat.
update(o,n),t.rankTime.update(o,n,r)),t.rank.update(o,n,a,l.state==="saved"),t.announcer.update(o,l,i),(o||s||l.state===
"locked")&&(document.body.dataset.ready="")}function nc(t,e){if(t.hidden=!e,!e)return;t.dataset.sections=e.sections.length>
Yi?"many":"few";let n=e.ranks.rank.length;t.dataset.ranks=n>Xi?"many":n>Vi?"some":"few"}Zi();})();
