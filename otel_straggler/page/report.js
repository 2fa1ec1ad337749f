(()=>{var qe="http://www.w3.org/2000/svg",re=new WeakMap;function u(t,e,...n){return{tag:t,props:e||{},children:Ge(n)}}function $(t,...e){
let n=Ge(e),o=t.contains(document.activeElement)?document.activeElement:null;re.has(t)||t.replaceChildren(),ae(t,re.get(
t)||[],n,t.namespaceURI===qe),re.set(t,n),o?.isConnected&&o!==document.activeElement&&o.focus({preventScroll:!0})}function A(t){return String(t).replace(as,"\uFFFD")}var as=/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
function Ge(t){let e=[];for(let n of t.flat(1/0))n==null||typeof n=="boolean"||e.push(typeof n=="object"?n:A(n));return e}
function ae(t,e,n,o){let s=Array.from(t.childNodes).slice(0,e.length),r=ls(e,n),a=new Set(r);e.forEach((i,c)=>{a.has(c)||
s[c].remove()});let l=t.firstChild;n.forEach((i,c)=>{let f=r[c],d=f===-1?us(i,o):cs(s[f],e[f],i,o);d===l?l=l.nextSibling:
t.insertBefore(d,l)})}function ls(t,e){let n=new Map;t.forEach((s,r)=>{$t(s)!==void 0&&n.set($t(s),r)});let o=new Set;return e.
map((s,r)=>{let a=$t(s),l=a===void 0?r:n.get(a)??-1;return l===-1||l>=t.length||o.has(l)||!is(t[l],s)?-1:(o.add(l),l)})}
function $t(t){return typeof t=="object"&&t.props.key!==null?t.props.key:void 0}function is(t,e){return typeof t!=typeof e?
!1:typeof e!="object"||t.tag===e.tag&&$t(t)===$t(e)}function cs(t,e,n,o){if(typeof n!="object")return e!==n&&(t.nodeValue=
n),t;let s=o||n.tag==="svg";return ze(t,e.props,n.props),ae(t,e.children,n.children,s),t}function us(t,e){if(typeof t!="\
object")return document.createTextNode(t);let n=e||t.tag==="svg",o=n?document.createElementNS(qe,t.tag):document.createElement(
t.tag);return ze(o,{},t.props),ae(o,[],t.children,n),o}function ze(t,e,n){for(let o of Object.keys(e))o in n||Ue(t,o,null,
e[o]);for(let o of Object.keys(n))e[o]!==n[o]&&Ue(t,o,n[o],e[o])}function Ue(t,e,n,o){if(e!=="key"){if(e==="style")return fs(
t,n||{},o||{});e.startsWith("on")?t[e.toLowerCase()]=n||null:e==="value"&&"value"in t?t.value!==n&&(t.value=n):n==null||
n===!1?t.removeAttribute(e):t.setAttribute(e,n===!0?"":A(n))}}function fs(t,e,n){for(let o of Object.keys(n))o in e||t.style.
removeProperty(o);for(let o of Object.keys(e))n[o]!==e[o]&&t.style.setProperty(o,String(e[o]))}var Ye=[[1,1,"s"],[.001,1e3,"ms"],[1e-6,1e6,"\xB5s"]];function O(t,e=3){return g(t)?Xe.format(Number.isInteger(t)?t:Number(
t.toPrecision(e))):"\u2013"}var Xe=new Intl.NumberFormat("en-US",{maximumSignificantDigits:21});function g(t){return typeof t==
"number"&&Number.isFinite(t)}function N(t){if(!g(t))return"\u2013";if(t===0)return"0 s";let e=Math.abs(t);if(e>=120)return U(
t);let[,n,o]=Ye.find(([s])=>e>=s*.9995)||Ye[2];return`${O(t*n)} ${o}`}function U(t){if(!g(t))return"\u2013";if(t<0)return`\
\u2212${U(-t)}`;if(t<10)return`${O(Math.round(t*10)/10)} s`;let e=Math.round(t);if(e<60)return`${e} s`;if(e<3600)return le(
e,60,"min","s");let n=Math.round(t/60);return n<1440?le(n,60,"h","min"):le(Math.round(t/3600),24,"d","h")}function le(t,e,n,o){
let s=t%e;return`${Xe.format(Math.floor(t/e))} ${n}${s?` ${s} ${o}`:""}`}function C(t){return g(t)?t<1.5?"1 s":U(Math.round(
t)):"never"}function Y(t,e){let n=e?"GPU":"rank";if(!g(t))return"\u2013";if(t<1)return`0 ${n}-s`;if(t<59.5)return`${O(t,
2)} ${n}-s`;if(t<3600)return`${O(t/60,2)} ${n}-min`;let o=t/3600;return`${O(o<9.95?o:Math.round(o),2)} ${n}-h`}function F(t,e=2){
if(!g(t))return"\u2013";let n=Number((100*t).toPrecision(12));return`${O(Math.abs(n)>=100?Math.round(n):n,e)} %`}function H(t){
return g(t)?`${t>=100?O(Math.round(t)):t.toFixed(2)}\xD7`:"\u2013"}function W(t,e){if(!g(t))return"\u2013";let n=new Date(
t*1e3),o=[n.getHours(),n.getMinutes(),n.getSeconds()].map(Ve).join(":");return g(e)&&new Date(e*1e3).toDateString()===n.
toDateString()?o:`${[n.getFullYear(),n.getMonth()+1,n.getDate()].map(Ve).join("-")} ${o}`}function Ve(t){return String(t).
padStart(2,"0")}function V(t,e,n=`${e}s`){return`${O(t)} ${t===1?e:n}`}function I(t){return t?t[0].toUpperCase()+t.slice(
1):""}function P(t){return ds[t]||String(t??"\u2013").replaceAll("_"," ")}var ds={slow_gpu:"slow GPU or host",slow_host:"\
slow host or data loading",late_arrival:"late arrival",link:"link",sequence_imbalance:"sequence-length imbalance",uneven_work:"\
ranks take turns",uniform_slowdown:"uniform slowdown",unknown:"unknown cause",host:"host clock",events:"CUDA events",cupti:"\
kernel times (CUPTI)",collective:"host clock, without waiting in collectives",mixed:"host clock and GPU times",synchronised:"\
times that contain waiting"};function it(t){let e=document.querySelector("[data-part=announcer]");e&&(e.textContent=A(t))}var ms=28;function D(t,e,n=""){let o=g(t)&&e>0?Math.min(1,Math.max(0,t/e)):0,s=u("span",{class:"bar-fill",style:{width:`${(100*
o).toFixed(2)}%`}});return u("span",{class:`bar ${n}`,"aria-hidden":"true"},s)}function b(t,e=""){return u("bdi",{class:`\
name ${e}`,title:t??!1},t??"")}function tt(t){return String(t??"").split(/(\S*-\S*)/).map(n=>n.includes("-")&&n.length<=
ms?u("span",{class:"unbroken"},n):n)}function X(t,e,n={}){return u("button",{type:"button",class:"rank-link",title:`Show\
 rank ${t}`,onclick:()=>e.select({rank:t}),...n},`rank ${O(t)}`)}var hs=["127.0.0.1:9464","localhost:9464"],Ze=/^otel-straggler (verdict|hang|doctor)\b/;
function ps(t,e,n=null){return n&&Ze.test(t)?`${t} --collector ${n}`:!/^https?:$/.test(e?.protocol)||hs.includes(e.host)?
t:Ze.test(t)?`${t} --collector ${e.origin}`:t}function ct(t,e=null){let n=ps(t,globalThis.location,e);return u("div",{class:"\
command",key:n},u("code",{dir:"ltr",tabindex:"0"},n),u("button",{type:"button",class:"copy","aria-label":`Copy: ${n}`,onclick:gs},
"Copy"))}async function gs(t){let e=t.currentTarget,n=e.previousElementSibling;try{await navigator.clipboard.writeText(n.
textContent),e.textContent="Copied",it("Copied"),window.setTimeout(()=>e.textContent="Copy",1500)}catch{ws(n),e.textContent=
"Press Ctrl+C",it("The command is selected: press Control and C to copy it")}}function ws(t){let e=document.createRange();
e.selectNodeContents(t);let n=window.getSelection();n.removeAllRanges(),n.addRange(e)}function B(t){return u("p",{class:"\
nothing"},t)}function Pt(t,e){let n=!1,o=null,s=()=>{$(t,o?e(o,n,()=>{n=!n,s()}):null)};return{update(r){o=r,s()}}}function pt(t,e,n,o){
return t<=e?null:u("button",{type:"button",class:"quiet",key:"more","aria-expanded":String(n),onclick:o},n?"Show fewer":
`Show all ${O(t)}`)}var ks=["critical","warning","info"],ys={critical:"\u2715",warning:"!",info:"i"},bs=["alertname","severity","run_id","jo\
b_name","cluster","rank","node"],_s=4,Je=3;function Qe(t,e){let n=new Map,o=null,s=()=>$(t,o?xs(o,e,n,r):null),r=(a,l)=>{
n.set(a,l),s()};return{update(a){o=a,s()}}}function xs(t,e,n=new Map,o=()=>{}){let s=Os(t.alerts||[]),{is_live:r,received_at_s:a}=t.
run,l=r?t.now_s:a??t.now_s,i=t.run.mode==="observe"?u("p",{class:"nothing"},"The collector is in observe mode: firing al\
erts are listed here, and no notifications are sent."):null;return s.length?[r?i:u("p",{class:"nothing"},"No rank is rep\
orting: these fired when the run was last seen."),s.length>_s?u("ul",{class:"cards",key:"names"},Ts(s).map(([c,f],d)=>Ss(
c,f,n.get(c)??(d?"none":"few"),l,o,e))):u("ul",{class:"cards",key:"alerts"},s.map(c=>sn(c,l,e)))]:[B("No alerts are firi\
ng."),r?i:null]}function Ts(t){let e=new Map;for(let n of t)e.set(n.name,[...e.get(n.name)??[],n]);return[...e]}function Ss(t,e,n,o,s,r){
let[a]=e,l=n!=="none",i=n==="all"?e:e.slice(0,Je),c=()=>s(t,n==="all"?"few":"all");return u("li",{key:`name ${t}`,"data-\
tone":tn(a),"data-alert":t},en(a),u("div",{},u("p",{class:"card-title"},u("button",{type:"button",class:"text-link","ari\
a-expanded":String(l),onclick:()=>s(t,l?"none":"few")},b(t)),u("span",{class:"label"},O(e.length),u("span",{class:"visua\
lly-hidden"}," of them")),u("small",{},` ${Ft(a)}, ${e.length>1?"newest ":""}for ${nn(a,o)}`)),l?u("ul",{class:"cards"},
i.map(f=>sn(f,o,r,e.length>1?"of some":"alone"))):u("p",{class:"one-line muted",dir:"auto"},tt(I(on(a)))),l?pt(e.length,
Je,n==="all",c):null))}function Ft(t){return t.labels.severity||"info"}function tn(t){return Ft(t)==="critical"?"bad":"w\
atch"}function en(t){let e=Ft(t);return u("span",{class:"tone-mark",title:e,"aria-hidden":"true"},ys[e]||"!")}function nn(t,e){
return U(Math.max(0,Math.round(e-t.since_ns/1e9)))}function on({annotations:t}){return t.summary||t.description||""}function Os(t){
let e=o=>(ks.indexOf(o.labels.severity)+4)%4,n=({labels:o})=>"rank"in o?1:0;return[...t].sort((o,s)=>e(o)-e(s)||n(o)-n(s)||
s.since_ns-o.since_ns)}function sn(t,e,n,o=""){let{labels:s,annotations:r}=t,a=/^\d{1,9}$/.test(s.rank??"")?Number(s.rank):
null;return u("li",{key:JSON.stringify(s),"data-tone":tn(t)},o?null:en(t),u("div",{},o==="alone"?null:u("p",{class:"card\
-title"},o?null:b(t.name),u("small",{},` ${Ft(t)}, for ${nn(t,e)}`)),u("p",{dir:"auto"},tt(I(on(t)))),r.summary&&r.description&&
r.description!==r.summary?u("p",{class:"muted",dir:"auto"},r.description):null,u("p",{class:"card-foot"},a===null?null:X(
a,n),s.node?b(s.node):null,Ms(s).map(([l,i])=>u("span",{class:"label",key:l},b(`${l}=${i}`))),$s(r.runbook_url))))}function Ms(t){
return Object.entries(t).filter(([e])=>!bs.includes(e)).slice(0,6)}function $s(t){return/^https?:\/\//i.test(t??"")?u("a",
{href:t,rel:"noreferrer noopener",target:"_blank"},"Runbook"):null}var Dt=40,rn=.1;function un(t){let{answer:e}=t;return e.kind==="hang"?Rs(t):Es(e)||Ws(t)}function Es(t){let e=t.peers;if(!e||
!g(e.own_s)||!g(e.peers_s))return null;let n=Math.max(e.own_s,e.peers_s),o=g(e.n_peers)&&e.n_peers>0?`${O(e.n_peers)} `:
"";return Kt([u("strong",{},H(e.slowdown))," as long",t.section?[" in ",b(t.section)]:null],Bt(dn(t),e.own_s,n,"own",N(e.
own_s)),Bt(Cs(t,o),e.peers_s,n,"others",N(e.peers_s)))}function Rs(t){let{answer:e,ranks:n}=t,o=As(t).map(s=>n.rank.indexOf(
s)).filter(s=>s!==-1);return o.length?e.cause==="lost"?vs(t,o):Ns(t,o):null}function As({answer:t,hangs:e}){return g(t.rank)?
[t.rank]:(e??[]).flatMap(({culprits:n})=>n??[])}function vs(t,e){let n=t.ranks.heartbeat_age_s,o=new Set(e),s=Math.min(...e.
map(l=>n[l]).filter(g)),r=Hs(n.filter((l,i)=>!o.has(i))),a=Math.max(...[s,r].filter(g));return Kt([u("strong",{},g(s)?C(
s):"Never seen"),g(s)?" since the last heartbeat":null],Bt(fn(t,e),s,a,"own",C(s)),g(r)&&Bt("others, median",r,a,"others",
C(r)))}function Ns(t,e){let{ranks:n}=t,o=new Set(e),s=n.rank.map((r,a)=>a).filter(r=>!o.has(r));return s.length?Kt(null,
cn(fn(t,e),ln(e.map(r=>an(n,r)))),cn("most of the others",ln(s.map(r=>an(n,r))))):null}function an(t,e){let n=t.open_sections[t.
open_section[e]],o=t.step[e],s=[g(o)?`step ${O(o)}`:"no step yet"];return t.states[t.state[e]]==="finished"?s.push("ende\
d"):n&&s.push(`in ${n}`),s.join(", ")}function ln(t){let e=new Map;for(let n of t)e.set(n,(e.get(n)??0)+1);return[...e].
reduce((n,o)=>o[1]>n[1]?o:n)[0]}function cn(t,e){return u("div",{class:"peer-row reached"},u("span",{class:"peer-name"},
b(I(t))),u("span",{},b(e)))}function fn({answer:t,ranks:e},n){return g(t.rank)?dn(t):n.length===1?`rank ${e.rank[n[0]]}`:
V(n.length,"rank")}function Cs({scope:t,cause:e},n){return t!=="run"&&t!=="role"?`its ${n}peers`:(e??"").endsWith("_imba\
lance")?"if all did the same work":"before"}function dn(t){return t.scope==="run"?"the run":g(t.rank)?`rank ${t.rank}`:t.
node?`host ${t.node}`:"this"}function Kt(t,...e){return u("figure",{class:"peers","data-field":"peers"},t&&u("figcaption",
{},t),e)}function Bt(t,e,n,o,s){return u("div",{class:"peer-row"},u("span",{class:"peer-name"},b(I(t))),D(e,n,o),u("span",
{class:"number"},s))}function Hs(t){let e=Float64Array.from(t.filter(g)).sort();return e.length?e[Math.floor((e.length-1)/
2)]:NaN}function Ws({ranks:t,slowdowns:e}){let n=e?.overall??[],o=Ls(n);if(!o||o.count<2)return null;let s=t.rank[o.slowest_place],
r=Math.max(...o.bins),a=`${V(o.count,"rank")} from ${H(o.low)} to ${H(o.high)}`;return Kt([u("strong",{},H(o.high)),` th\
e slowest of all, rank ${O(s)}`],u("svg",{class:"spread",viewBox:`0 0 ${Dt} 20`,preserveAspectRatio:"none",role:"img","a\
ria-label":a},o.bins.map((l,i)=>l>0&&u("rect",{key:i,x:i+.08,width:.84,y:(19.5-19*Math.sqrt(l/r)).toFixed(2),height:(.5+
19*Math.sqrt(l/r)).toFixed(2)}))),u("div",{class:"spread-axis","aria-hidden":"true"},u("span",{},H(o.from)),u("span",{},
"slowdown, all ranks"),u("span",{},H(o.to))))}function Ls(t){let[e,n,o,s]=[1/0,-1/0,0,-1];if(t.forEach((i,c)=>{g(i)&&(o+=
1,e=Math.min(e,i),i>n&&([n,s]=[i,c]))}),!o)return null;let r=Math.min(e,1-rn),a=Math.max(n,1+rn),l=new Array(Dt).fill(0);
for(let i of t)g(i)&&(l[Math.min(Dt-1,Math.floor((i-r)/(a-r)*Dt))]+=1);return{low:e,high:n,count:o,from:r,to:a,bins:l,slowest_place:s}}var mn={good:"\u2713",watch:"!",bad:"\u2715",unknown:"?",ended:"\u25A0"},jt={good:"Healthy",watch:"Keep an eye on it",bad:"\
Act",unknown:"Not known yet",ended:"Ended"};function hn(t,e){return{update(n){t.hidden=!n,n&&(t.dataset.tone=n.answer.tone,
t.dataset.kind=n.answer.kind,$(t,Is(n,e)))}}}function Is(t,e){let{answer:n}=t;return[u("div",{class:"answer-mark","aria-\
hidden":"true"},mn[n.tone]||"?"),u("div",{class:"answer-says"},u("p",{class:"eyebrow"},jt[n.tone]||jt.unknown),u("h1",{"\
data-field":"headline",dir:"auto"},tt(n.headline)),u("p",{class:"sentence","data-field":"sentence",dir:"auto"},tt(I(n.sentence))),
Ps(t)),u("div",{class:"answer-shows"},un(t),js(n,t.page_url),g(n.rank)?u("button",{type:"button",class:"quiet",onclick:()=>e.
select({rank:n.rank})},`All about rank ${n.rank}`):null)]}function Et(t){return jt[t]||jt.unknown}function Rt(t){return mn[t]||
"?"}function Ps(t){let{answer:e}=t,n=[["Why","cause",e.cause_text||(e.cause?P(e.cause):null)],["Where","section",e.section],
["Since","since",Ds(t)],[pn(t)?"Cost":"Costs","cost",Bs(t)],["Evidence","evidence",Ks(e)]].filter(([,,o])=>o);return n.length?
u("dl",{class:"facts"},n.map(Fs)):null}function Fs([t,e,n]){return u("div",{key:e},u("dt",{},t),u("dd",{"data-field":e},
b(n)))}function Ds(t){let{since_step:e,since_s:n}=t.answer,o=[];if(g(e)&&o.push(`step ${O(e)}`),g(n)){let s=U(Math.max(0,
Math.round(t.now_s-n)));o.push(`${s} ago (${W(n,t.now_s)})`)}return o.join(", ")}function pn(t){return t.answer.kind==="\
ended"}function Bs(t){let{answer:{cost:e},run:n}=t;if(!e)return"";let o=e.gpu_seconds_lost_per_hour,s=[];return g(o)&&o>=
1&&s.push(`${Y(o,n.on_gpu)} per hour`),g(e.gpu_seconds_lost)&&e.gpu_seconds_lost>=1&&s.push(`${Y(e.gpu_seconds_lost,n.on_gpu)}\
 ${pn(t)?"in all":"so far"}`),s.join(", ")}function Ks(t){if(!t.evidence)return"";let e=[P(t.evidence)];return g(t.confidence)&&
e.push(`${F(t.confidence)} sure`),t.is_localised===!1&&e.push("cannot tell culprit from victims"),e.join(", ")}function js(t,e){
let n=t.advice||[],o=t.commands||[];return!n.length&&!o.length?null:u("div",{class:"advice"},u("h2",{},"What to do"),u("\
ul",{"data-field":"advice"},n.map(s=>u("li",{dir:"auto"},I(s)))),o.map(s=>ct(s,e)))}var Us=1e4;function wn(){let t=null,e=null,n=!1,o=-1/0,s=null,r=a=>{o=Date.now(),it(a)};return{update(a,l,i){let c=l.state===
"reconnecting",f=qs(a,c,i);if(document.title=A(Gs(a,c)),document.documentElement.dataset.tone=c?"unknown":a?.answer.tone??
"unknown",f===t)return;let d=t===null,m=e!==gn(a)&&a!==null,h=n&&!c?`The collector responds again. ${f}`:f;if(t=f,n=c,a&&
(e=gn(a)),d)return;window.clearTimeout(s);let p=m?0:o+Us-Date.now();s=window.setTimeout(()=>r(h),Math.max(0,p))}}}function qs(t,e,n){
return e?"The collector does not respond. The data on this page is getting stale.":n||(t?`${Et(t.answer.tone)}: ${t.answer.
headline}`:"")}function gn(t){return t?JSON.stringify([t.run.run_id,t.run.group]):null}function Gs(t,e=!1){if(!t)return"\
otel-straggler";let{answer:n,run:o}=t;return e?`${Rt("unknown")} The collector does not respond \xB7 ${o.job||o.run_id}`:
`${Rt(n.tone)} ${n.headline} \xB7 ${o.job||o.run_id}`}var zs={ok:"finished",failed:"failed",cancelled:"was cancelled",preempted:"was preempted"},Ys={live:"\u25CF",ended:"\u25A0",
saved:"\u25A3",reconnecting:"\u25CB",connecting:"\u25CB",locked:"\u25CB"};function kn(t,e,n){let o=null,s=()=>{if(!o)return;
let{picture:r,connection:a,problem:l,historyProblem:i,problems:c}=o,f=Vs(r,a,l,Date.now(),i,c);t.dataset.state=o.connection.
state,t.dataset.old=String(f.isOld),$(t,u("span",{class:"dot","aria-hidden":"true"},Ys[o.connection.state]),u("span",{class:"\
connection-state"},f.state),f.age?u("span",{class:"connection-age number"},f.age):null),e.hidden=!f.notice,e.dataset.kind=
f.kind||"",$(e,f.notice?er(f,n):null);let d=o.connection.state==="reconnecting"||f.kind==="awaited";document.body.classList.
toggle("is-stale",d)};return window.setInterval(s,1e3),{update(r,a,l,i,c=null,f=[]){o={picture:r,connection:l,problem:i,
historyProblem:c,problems:f},s()}}}function Vs(t,e,n,o,s=null,r=[]){let a=o/1e3+e.clock_s,l=t?.run.received_at_s,i=g(l)?
Math.max(0,a-l):null,c={state:P(e.state),age:"",isOld:!1,notice:null};if(e.state==="saved")return Zs(t,c);if(e.state==="\
reconnecting")return Js(t,e,o,i,c);if(n)return{...c,notice:n,kind:"problem"};if(s){let d=`Past runs cannot be shown: ${s}`;
Object.assign(c,{notice:d,kind:"history-problem"})}if(r.length){let d=[c.notice,...r.map(Xs)].filter(Boolean).join(" ");
Object.assign(c,{notice:d,kind:"collector-problem"})}if(!t)return c;if(e.state==="ended")return Qs(t,c);let f=i!==null&&
i>30;return{...c,age:`data ${C(i)} ago`,isOld:f}}function Xs(t){return`${t[0].toUpperCase()}${t.slice(1)}.`}function Zs(t,e){
if(!t)return e;let n=W(t.now_s,null);return{...e,state:"saved",age:n,notice:`A report of ${n}. It no longer changes.`,kind:"\
saved"}}function Js(t,e,n,o,s){let r=Math.max(0,Math.ceil(((e.retry_ms??n)-n)/1e3)),a=C((n-e.since_ms)/1e3),l=t&&o!==null?
` The data is ${C(o)} old.`:"",i=r>0?`Trying again in ${r} s.`:"Trying again now.";return{...s,age:o===null?"":`data ${C(
o)} old`,isOld:!0,notice:e.told?`The collector cannot show this: ${e.told}${l} ${i}`:`The collector has not responded fo\
r ${a}.${l} ${i}`,kind:"away",canRetry:!0}}function Qs(t,e){let{run:n}=t;if(g(n.awaited_since_s))return tr(t,e);let o=W(
n.received_at_s,t.now_s);if(!n.is_live){let r=`From the collector's history: no rank is reporting. Last seen ${o}.`;return{
...e,state:"history",age:o,notice:r,kind:"history"}}let s=W(n.finished_at_s,t.now_s);return{...e,state:"ended",age:s,notice:`\
This run ${zs[n.outcome]??"ended"} at ${s}.`,kind:"ended"}}function tr({run:t,now_s:e},n){let o=W(t.seen_at_s,e),s=`This\
 is the run as of ${o}. The collector was restarted at ${W(t.awaited_since_s,e)}, and has received nothing from this run\
 since.`;return{...n,state:"last view",age:o,isOld:!0,notice:s,kind:"awaited"}}function er(t,e){return[u("span",{dir:"au\
to"},t.notice),t.canRetry?u("button",{type:"button",class:"quiet",onclick:e.retry},"Try now"):null,t.kind==="problem"?u(
"button",{type:"button",class:"quiet",onclick:()=>e.select({run:null,group:null,rank:null,section:null})},"Show the firs\
t run"):null]}var nr=.03,or=30,sr=.1,rr=.048;function yn(t){return{update(e){t.hidden=!e,e&&$(t,ar(e).map(lr))}}}function ar(t){let{run:e}=t,
n=t.answer.kind==="ended";return[ir(e),cr(e,n),fr(t,n),dr(t,n),mr(t),gr(e)]}function lr({title:t,large:e,of:n,unit:o,small:s,
tone:r}){let a=n?`of ${n}`:o;return u("div",{class:"figure",key:t,"data-tone":r||!1},u("dt",{},t),u("dd",{class:"figure-\
large"},e,a&&u("span",{class:"figure-of"},` ${a}`)),u("dd",{class:"figure-small"},s||" "))}function ir(t){let e=t.slowest_step_s,
n=t.world_size===1?"":" of the slowest rank",o=g(e)?`of it ${N(e)} own work${n}`:"";return{title:"Step time",large:N(t.step_s),
small:o}}function cr(t,e){let n=g(t.waste)&&t.waste>=1,o=e?"took":"takes",s=g(t.slowdown)?`${o} ${H(t.slowdown)} as long\
 as it could`:"";return{title:"Time lost",large:F(t.waste),small:n?"no progress":s,tone:g(t.waste)?ur(t.waste):null}}function ur(t){
return t>=sr?"bad":t>=rr?"watch":"good"}function fr({run:t,heat:e},n){let o=[],s=Math.round(nr*(e?.cells?.length??0))<=1;
g(t.m_w)&&t.m_w>=.5&&o.push(`${F(Math.min(1,t.m_w))} by the worst worker${s?"":"s"}`),g(t.m_s)&&t.m_s>=.5&&o.push(`${F(Math.
min(1,t.m_s))} by the last stage`);let[r,a]=Y(t.gpu_seconds_lost,t.on_gpu).split(" ");return{title:n?"Lost in all":"Lost\
 so far",large:r,unit:a,small:o.join(", ")}}function dr({run:t,ranks:e},n){let o=n?-1:e.states.indexOf("lost"),s=o===-1?
0:e.state.filter(i=>i===o).length,r=s?Math.min(t.ranks_reporting,e.rank.length-s):t.ranks_reporting,a=g(t.world_size)?Math.
max(0,t.world_size-r-s):0,l=[s&&`${O(s)} lost`,a&&`${O(a)} missing`];return{title:n?"Ranks that reported":"Ranks reporti\
ng",large:O(r),of:g(t.world_size)?O(t.world_size):null,small:l.filter(Boolean).join(", ")||"all of them",tone:s||a?"bad":
null}}function mr(t){let{run:e}=t,n=g(e.finished_at_s)||t.answer.kind==="ended",o=n?e.finished_at_s??e.received_at_s??t.
now_s:t.now_s,s=t.answer.kind==="hang"?t.answer.since_s:e.began_at_s,r=[n&&e.state==="training"?"last seen training":pr(
e)];return g(s)&&!g(e.awaited_since_s)&&(r[0]+=`${hr(t,n,s)} ${U(Math.max(0,o-s))}`),g(e.attempt)&&e.attempt>0&&r.push(`\
attempt ${e.attempt}`),{title:"Step",large:O(e.step),small:r.join(", ")}}function hr({run:t,started_at_s:e},n,o){return n?
" after":t.state!=="unknown"&&g(e)&&o===t.began_at_s&&o-e<or?", monitored for":" for"}function pr(t){return g(t.awaited_since_s)?
"before the collector was restarted":t.state==="unknown"?"without heartbeats":P(t.state)}function gr(t){let e=t.resolvable_slowdown;
return{title:"Detection limit",large:g(e)?F(e-1):F(null),small:t.time_basis?`measured by ${P(t.time_basis)}`:"slowdown o\
f one rank"}}function bn(t){return{update(e,n,o){let s=o!==null&&o.runs.length===0;t.hidden=!s,s&&$(t,wr(window.location.hostname||"1\
27.0.0.1",window.location.protocol))}}}function wr(t,e="http:"){let n=t.includes(":")&&!t.startsWith("[")?`[${t}]`:t,o=`${e}\
//${n}:4318`;return[u("p",{class:"eyebrow"},"No runs yet"),u("h1",{},"The collector is running, but no training run has \
reported"),u("p",{},"Add five lines to the training loop and start it. The page updates automatically."),u("pre",{tabindex:"\
0","aria-label":"Five lines of Python"},u("code",{},kr(o))),u("p",{},"Ranks send to ",u("code",{},o)," unless the collec\
tor was started with another address. It listens on this machine only unless configured otherwise (",u("code",{},"--otlp\
-http 0.0.0.0:4318"),", with grants or ",u("code",{},"--insecure"),")."),u("h2",{},"Nothing arrives?"),u("p",{},"Run thi\
s in the environment of the job:"),ct("otel-straggler doctor"),u("h2",{},"Just trying it out?"),u("p",{},"This sends the\
 telemetry of eight ranks, one of them slow, in real time:"),ct(`otel-straggler simulate --steps 2000 --speed 1 --send ${o}`)]}
function kr(t){return["import otel_straggler as ots","",`ots.configure(endpoint="${t}")`,"for n, batch in enumerate(batc\
hes):","    ots.step(n)",'    with ots.section("forward"):',"        loss = model(batch)","ots.shutdown()"].join(`
`)}var _n=8;function xn(t,e){return{update(n){$(t,n?yr(n.ledger||[],e,ie(n)):null)}}}function ie({ranks:t,slowdowns:e}){return((e?.
overall??[]).filter(g).length||t.rank.length)===1}function yr(t,e,n=!1){let o=t.filter(a=>g(a.exposed_s));if(!o.length)return B(
"No step has been analyzed yet.");let s=o.reduce((a,l)=>a+Math.max(0,l.exposed_s),0),r=Math.max(...o.map(a=>Math.max(a.exposed_s,
a.typical_s??0)));return[br(o,s),u("table",{class:"rows"},u("caption",{class:"visually-hidden"},"Seconds of the step by \
section"),u("thead",{},u("tr",{},u("th",{scope:"col"},"Section"),u("th",{scope:"col",class:"wide"},"Adds to the step"),u(
"th",{scope:"col",class:"number"},"Exposed"),n?null:u("th",{scope:"col",class:"number spare"},"Typical rank"),n?null:u("\
th",{scope:"col"},"Last one"))),u("tbody",{},o.map((a,l)=>_r(a,l,s,r,n,e))))]}function br(t,e){return u("div",{class:"st\
ack",role:"img","aria-label":`A step of ${N(e)}; the table below lists its parts`},t.map((n,o)=>u("span",{key:n.section,
class:`shade shade-${o%_n}`,title:`${n.section}: ${N(n.exposed_s)}`,style:{"flex-grow":e>0?Math.max(0,n.exposed_s/e).toFixed(
5):1}},n.exposed_s/e>.12?b(n.section):null)))}function _r(t,e,n,o,s,r){return u("tr",{key:t.section},u("th",{scope:"row"},
u("span",{class:`swatch shade-${e%_n}`,"aria-hidden":"true"}),u("button",{type:"button",class:"text-link",title:"Show th\
is section over time",onclick:()=>r.select({section:t.section})},b(t.section))),u("td",{class:"wide"},D(t.exposed_s,o,"n\
eutral")),u("td",{class:"number"},N(t.exposed_s),u("small",{},` ${F(n>0?t.exposed_s/n:null)}`)),s?null:u("td",{class:"nu\
mber spare"},N(t.typical_s)),s?null:u("td",{},g(t.leader_rank)?X(t.leader_rank,r):u("span",{class:"muted"},"varies")))}function et(t){if(!Number.isFinite(t)||t<=0)return 0;let e=Math.round(128+64*Math.log2(t));return Math.min(255,Math.max(
1,e))}function Sn(t,e=t.length){let n=new Uint8Array(e);for(let o=0;o<e;o+=1)n[o]=et(t[o]);return n}function Ut(t){return t===
0?null:2**((t-128)/64)}function ce(t){if(t.encoding!=="uint8-log2")throw new Error(`timeline: encoding is ${t.encoding};\
 expected uint8-log2. Reload the page.`);let e=xr(t.values),n=t.ranks.length*t.columns.length;if(e.length!==n)throw new Error(
`timeline: ${e.length} bytes for ${t.ranks.length} ranks in ${t.columns.length} columns; expected ${n}. Reload the page.`);
let{run_id:o,group:s,section:r,first:a,last:l,ranks:i,columns:c}=t;return{run_id:o,group:s,section:r??"",first:a,last:l,
ranks:i,columns:c,bytes:e}}function xr(t){if(Uint8Array.fromBase64)return Uint8Array.fromBase64(t??"");let e=atob(t??""),
n=new Uint8Array(e.length);for(let o=0;o<e.length;o+=1)n[o]=e.charCodeAt(o);return n}function On(t,e,n=360){if(!t||Tr(t,
e)||Sr(t,e))return e;if(e.columns.length===0)return t;let o=Mr(t.ranks,e.ranks),s=Er(t,e,n),r=new Uint8Array(o.length*s.
length),a=new Map([t,e].map(h=>[h,$r(o,h.ranks)]));s.forEach(({from:h,index:p},w)=>{Rr(h,p,r,w*o.length,a.get(h))});let l=s.
map(({from:h,index:p})=>h.columns[p]),{run_id:i,group:c,section:f}=e,[d,m]=[l[0].seq,l[l.length-1].seq];return{run_id:i,
group:c,section:f,first:d,last:m,ranks:o,columns:l,bytes:r}}function Tr(t,e){return["run_id","group","section"].some(n=>t[n]!==
e[n])}function Sr(t,e){let[n,o]=[Tn(t),Tn(e)];if(!n||!o)return!1;if(o.seq<=n.seq&&o.at_s>n.at_s)return!0;let s=new Map(t.
columns.map(r=>[r.seq,r]));return e.columns.some(r=>{let a=s.get(r.seq);return a!==void 0&&!Or(a,r)})}function Or(t,e){return t.
seq===e.seq&&t.at_s===e.at_s&&t.first_step===e.first_step}function Tn(t){return t.columns[t.columns.length-1]}function Mr(t,e){
return t.length===e.length&&t.every((n,o)=>n===e[o])?t:[...new Set([...t,...e])].sort((n,o)=>n-o)}function $r(t,e){if(t.
length===e.length)return null;let n=new Map(t.map((o,s)=>[o,s]));return Int32Array.from(e,o=>n.get(o))}function Er(t,e,n){
let o=new Map;for(let r of[t,e])r.columns.forEach((a,l)=>o.set(a.seq,{from:r,index:l}));return[...o.keys()].sort((r,a)=>r-
a).slice(-n).map(r=>o.get(r))}function Rr(t,e,n,o,s){let r=t.ranks.length,a=t.bytes.subarray(e*r,(e+1)*r);if(s===null)n.
set(a,o);else for(let l=0;l<r;l+=1)n[o+s[l]]=a[l]}var At=2,Ar=.7,vr=.05,ue={fast:["#c9dff2","#78b0de","#3179bb","#124384"],even:"#f6f6f4",slow:["#fdd8ae","#f79c47","#da5a\
0e","#852803"]};function Rn(t){let e=getComputedStyle(t),n=(o,s)=>e.getPropertyValue(o).trim()||s;return{fast:n("--heat-\
fast",ue.fast.join(" ")).split(/\s+/),even:n("--heat-even",ue.even),slow:n("--heat-slow",ue.slow.join(" ")).split(/\s+/),
ink:n("--chart-ink","#1c2127"),quiet:n("--chart-quiet","#57606a"),line:n("--chart-line","#d0d7de"),surface:n("--chart-su\
rface","#ffffff"),empty:n("--chart-empty","#e9ecef"),hatch:n("--chart-hatch","#b6bec7"),flag:n("--chart-flag","#b3261e"),
accent:n("--chart-accent","#0b57d0"),font:e.fontFamily||"sans-serif"}}function fe(t){let e=et(At)-128,n=Math.min(1,Math.
abs(t-128)/e),o=n**Ar*-Math.expm1(-((n/vr)**2));return t<128?-o:o}function de(t,e){let n=[t.even,...e<0?t.fast:t.slow],o=Math.
abs(e)*(n.length-1),s=Math.min(n.length-2,Math.floor(o)),[r,a]=[En(n[s]),En(n[s+1])],l=o-s;return Wr(r.map((i,c)=>i+l*(a[c]-
i)))}function An(t){let e=new Uint8ClampedArray(1024);for(let n=1;n<256;n+=1)e.set([...de(t,fe(n)),255],n*4);return new Uint32Array(
e.buffer)}function vn(t){return Array.from({length:256},(e,n)=>{let o=de(t,fe(n||128));return{fill:`rgb(${o.map(Math.round).
join(" ")})`,ink:Nr(o)}})}function Nr(t){return Mn(t,[0,0,0])>=Mn(t,[255,255,255])?"#000000":"#ffffff"}function Mn(t,e){
let[n,o]=[$n(t),$n(e)].sort((s,r)=>r-s);return(n+.05)/(o+.05)}function $n(t){let[e,n,o]=t.map(Cn);return .2126*e+.7152*n+
.0722*o}function Nn(t){return`linear-gradient(to right, ${Array.from({length:33},(n,o)=>{let s=et(At**(o/16-1));return`r\
gb(${de(t,fe(s)).map(Math.round).join(" ")}) ${o/32*100}%`}).join(", ")})`}function Cr(t){let e=/^#([0-9a-f]{6})$/i.exec(
t);if(!e)throw new Error(`colour ${t}: expected #rrggbb. Look at charts.css.`);return[16,8,0].map(n=>parseInt(e[1],16)>>
n&255)}function Cn(t){let e=t/255;return e<=.04045?e/12.92:((e+.055)/1.055)**2.4}function Hr(t){let e=Math.min(1,Math.max(
0,t));return 255*(e<=.0031308?e*12.92:1.055*e**(1/2.4)-.055)}function En(t){let[e,n,o]=Cr(t).map(Cn),s=Math.cbrt(.4122214708*
e+.5363325363*n+.0514459929*o),r=Math.cbrt(.2119034982*e+.6806995451*n+.1073969566*o),a=Math.cbrt(.0883024619*e+.2817188376*
n+.6299787005*o);return[.2104542553*s+.793617785*r-.0040720468*a,1.9779984951*s-2.428592205*r+.4505937099*a,.0259040371*
s+.7827717662*r-.808675766*a]}function Wr([t,e,n]){let o=(t+.3963377774*e+.2158037573*n)**3,s=(t-.1055613458*e-.0638541728*
n)**3,r=(t-.0894841775*e-1.291485548*n)**3;return[4.0767416621*o-3.3077115913*s+.2309699292*r,-1.2684380046*o+2.6097574011*
s-.3413193965*r,-.0041960863*o-.7034186147*s+1.707614701*r].map(Hr)}function nt(t,e){return e?`rank ${t} on ${e}`:`rank ${t}`}function Hn(t){let e=Ut(t);if(e===null)return"no data";let n=`${e.
toFixed(2)}x its peers`;return t===255?`${n} or more`:t===1?`${n} or less`:n}function ut(t){return t==null?"no data":`${t.
toFixed(2)}x its peers`}function Wn(t){return t==null?"":t>=9.95?t.toFixed(0):t.toFixed(t>=3.95?1:2)}function Ln(t){let{
first_step:e,last_step:n,at_s:o}=t;return e===null?`until ${zt(o)}`:e===n?`step ${e}`:`steps ${e}\u2013${n}`}function Gt({
first_step:t,at_s:e}){return t===null?zt(e):gt(t)}function zt(t){if(t==null)return"";let e=new Date(t*1e3);return[e.getHours(),
e.getMinutes(),e.getSeconds()].map(n=>String(n).padStart(2,"0")).join(":")}function gt(t){return String(t).replace(/\B(?=(\d{3})+$)/g,
",")}function ot(t){return`${gt(t)} ${t===1?"rank":"ranks"}`}var st="no other rank to compare with";function wt(t,e){let n=new Map;for(let o=0;o<e.length;o+=1){if(!(e[o]>0))continue;
let s=t.role?.[o];n.set(s,(n.get(s)??0)+1)}return o=>e[o]>0&&n.get(t.role?.[o])===1}function _(t,e,n={},...o){let s=document.createElement(t);e&&(s.className=e);for(let[r,a]of Object.entries(n))s.setAttribute(
r,a);return s.append(...o.map(r=>typeof r=="string"?A(r):r)),s}function Z(){return parseFloat(getComputedStyle(document.
documentElement).fontSize)/16||1}function kt(t,e,n){let o=_("button","chart-button",{type:"button","aria-label":e,title:e},
t);return o.addEventListener("click",n),o}function vt(t,e){let n=_("select","chart-select",{"aria-label":t});n.addEventListener(
"change",()=>e(n.value));let o="";return{element:n,setOptions:(r,a)=>{let l=JSON.stringify(r);l!==o&&(n.replaceChildren(
...r.map(({name:i,words:c})=>_("option","",{value:i},c))),o=l),n.value!==a&&(n.value=a)}}}function In(t){let e=_("span",
"chart-scale-bar"),n=[1/At,1,At].map((a,l)=>_("span","chart-scale-figure",{},`${l===2?"\u2265 ":l===0?"\u2264 ":""}${a}x`)),
o=_("span","chart-scale",{},e,_("span","chart-scale-figures",{},...n)),s=["no data",...t].map(a=>_("span","chart-key",{},
_("span",`chart-mark chart-mark-${a.replace(" ","-")}`),a));return{element:_("div","chart-legend",{role:"img","aria-labe\
l":"Colours: blue is faster than the peers, neutral is even, orange is slower"},_("span","chart-scale-word",{},"faster"),
o,_("span","chart-scale-word",{},"slower"),...s),setPalette:a=>{e.style.backgroundImage=Nn(a)}}}function Pn(t){let e=_("\
strong",""),n=_("span",""),o=_("div","chart-tooltip",{role:"tooltip"},e,n);return o.hidden=!0,t.append(o),{element:o,show:([
r,...a],l,i)=>{e.textContent=A(r),n.textContent=A(a.filter(Boolean).join(" \xB7 ")),o.hidden=!1;let{offsetWidth:c,offsetHeight:f}=o,
d=l+14+c>t.clientWidth?l-14-c:l+14,m=i+14+f>t.clientHeight?i-10-f:i+14;o.style.transform=`translate(${Math.round(Math.max(
0,d))}px, ${Math.round(m)}px)`},hide:()=>{o.hidden=!0}}}function Fn(){return _("div","chart-spoken",{role:"status","aria\
-live":"polite"})}function Dn(t,e){let n=["rank","slowdown",e,"state","flagged"].map(i=>_("th","",{scope:"col"},i)),o=_(
"tbody",""),s=_("table","",{},_("caption","",{},t),_("thead","",{},_("tr","",{},...n)),o),r=_("div","chart-spoken",{},s),
a="";return{element:r,update:(i,c)=>{let f=i.map(m=>({...m,words:c(m.rank)})),d=JSON.stringify(f);d!==a&&o.replaceChildren(
...f.map(Lr)),a=d}}}function Lr({rank:t,node:e,slowdown:n,isLone:o,words:s,state:r,why:a}){let l=[o?st:ut(n),s,r??"unkno\
wn",a??"no"];return _("tr","",{},_("th","",{scope:"row"},nt(t,e)),...l.map(i=>_("td","",{},i)))}function Bn(t){let e=new MutationObserver(
t);e.observe(document.documentElement,{attributes:!0,attributeFilter:["data-theme","class"]});let n=matchMedia("(prefers\
-color-scheme: dark)");return n.addEventListener("change",t),()=>{e.disconnect(),n.removeEventListener("change",t)}}var Kn=10,Ir=["Since","For","Why","Cost","Then"];function jn(t){let e=t.hangs||[],n=e.flatMap(a=>a.earlier||[]).filter(a=>!a.
is_brief),o=e.map(a=>a.earlier_brief).filter(Boolean);if(!n.length&&!o.length)return null;let s=e.reduce((a,l)=>a+(l.earlier_brief?
0:l.earlier_left_out||0),0),r=Math.max(0,n.length-Kn)+s;return[u("h3",{key:"title"},"Earlier hangs"),n.length?u("table",
{key:"hangs",class:"rows","data-field":"earlier-hangs"},u("caption",{class:"visually-hidden"},"Past hangs, newest first"),
u("thead",{},u("tr",{},Ir.map(a=>u("th",{scope:"col",key:a,class:a==="Then"&&"spare"},a)))),u("tbody",{},Fr(n).map((a,l)=>Dr(
a,l,t)))):null,r?u("p",{key:"more",class:"nothing"},`and ${V(r,"shorter one")}`):null,o.map((a,l)=>Pr(a,l,n.length+r>0,t.
run))]}function Pr({sentence:t,gpu_seconds_lost:e,is_all:n},o,s,r){let a=g(e)&&e>=1?` ${n?"Cost":"Cost at least"}: ${Y(e,
r.on_gpu)}.`:"";return u("p",{key:`brief-${o}`,"data-field":"brief-hangs"},s?"and ":"",b(t),a)}function Fr(t){let e=t.map(
(o,s)=>s).sort((o,s)=>t[s].duration_s-t[o].duration_s),n=new Set(e.slice(0,Kn));return t.filter((o,s)=>n.has(s))}function Dr(t,e,{
now_s:n,run:o}){let s=t.is_end_seen?"":"at least ",r=g(t.gpu_seconds_lost)?Y(t.gpu_seconds_lost,o.on_gpu):"unknown";return u(
"tr",{key:e},u("th",{scope:"row",class:"brief"},W(t.since_s,n)),u("td",{class:"brief"},`${s}${U(t.duration_s)}`),u("td",
{},b(t.sentence)),u("td",{class:"brief"},r),u("td",{class:"spare"},b(t.then)))}var me=[{state:"lost",tone:"lost",mark:"\u2715",meaning:"no heartbeat: crashed, stopped or cut off"},{state:"stuck",tone:"\
stuck",mark:"\u25A0",meaning:"alive, with open work, but no progress"},{state:"late",tone:"late",mark:"\u25B2",meaning:"\
no progress for half of its timeout"},{state:"missing",tone:"unknown",mark:"?",meaning:"expected, but never seen"},{state:"\
starting",tone:"starting",mark:"\u25C7",meaning:"has not begun a step yet"},{state:"ok",tone:"ok",mark:"\u25CF",meaning:"\
making progress"},{state:"finished",tone:"finished",mark:"\u2713",meaning:"has reported how it ended"}],qn={state:"unkno\
wn",tone:"unknown",mark:"?",meaning:"no data"},Br=3;function ft(t){return me.find(({state:e})=>e===t)||qn}function Gn(t){
let e=new Array(t.states.length).fill(0),n=0;for(let s of t.state)s>=0&&s<e.length?e[s]+=1:n+=1;let o=t.states.map((s,r)=>({
...ft(s),state:s,count:e[r]}));return n&&o.push({...qn,count:n}),o.filter(({count:s})=>s>0).sort((s,r)=>he(s.state)-he(r.
state))}function he(t){let e=me.findIndex(({state:n})=>n===t);return e===-1?me.length:e}function pe(t){return new Set((t||
[]).flatMap(e=>e.victims>0&&e.culprits||[]))}function zn(t,e,n=new Set){let o=t.states.map(he),s=a=>n.has(t.rank[a])?0:1,
r=[];return t.state.forEach((a,l)=>{o[a]<Br&&r.push(l)}),r.sort((a,l)=>s(a)-s(l)||o[t.state[a]]-o[t.state[l]]||Un(t,l)-Un(
t,a)),{places:r.slice(0,e),left_out:Math.max(0,r.length-e)}}function Un(t,e){return Math.max(t.heartbeat_age_s?.[e]??0,t.
progress_age_s?.[e]??0)}function ge(t){let e=Float64Array.from((t||[]).filter(g)).sort();return e.length?{oldest:e[e.length-
1],median:e[Math.floor((e.length-1)/2)]}:null}function Yn(t,e,n){let o=Kr,s=1;for(;o>1&&(s=Math.ceil(t/Math.max(1,Math.floor(
e/o))),!(s*o<=n));o-=o>8?1:.5);s=Math.ceil(t/Math.max(1,Math.floor(e/o)));let r=Math.ceil(t/s);return{width:Math.min(jr,
e/r),height:o,columns:r,rows:s,total:s*o}}var Kr=24,jr=110;var Ur=8,qr=["Heartbeat","Step"],Gr=132;function Qn(t,e){let n=we(t,"state-counts"),o=Zr(t),s=we(t,"grave-ranks"),r=we(t,
"earlier-hangs"),a=null,l=null,i={how:null,ranks:null},c=0;function f(){if(!a||!a.ranks.rank.length||o.clientWidth===0)return;
let p=document.activeElement===o,w=[o.clientWidth,window.devicePixelRatio,Z(),a.theme,p?c:-1,...a.culprits].join();w===i.
how&&Qr(i.ranks,a.ranks)||(i={how:w,ranks:a.ranks},l=Jr(o,a,p?c:null))}function d(){a&&o.setAttribute("aria-valuetext",Xn(
a.ranks,c)),o.setAttribute("aria-valuenow",String(c))}function m(p){c=Math.max(0,Math.min(a.ranks.rank.length-1,p)),d(),
f()}o.addEventListener("keydown",p=>{if(!a||!l)return;let w={ArrowRight:1,ArrowLeft:-1,ArrowDown:l.columns,ArrowUp:-l.columns,
Home:-1/0,End:1/0};if(p.key in w)m(c+w[p.key]);else if(p.key==="Enter"||p.key===" ")e.select({rank:a.ranks.rank[c]});else
return;p.preventDefault()}),o.addEventListener("pointermove",p=>{let w=Zn(p,l,a);o.title=w===null?"":Xn(a.ranks,w)}),o.addEventListener(
"click",p=>{let w=Zn(p,l,a);w!==null&&(m(w),e.select({rank:a.ranks.rank[w]}))}),o.addEventListener("focus",()=>{d(),f()}),
o.addEventListener("blur",f);let h=new ResizeObserver(f);return h.observe(o),{update(p,w){if(a=p&&{ranks:p.ranks,theme:w.
theme,culprits:pe(p.hangs)},o.hidden=!p||p.ranks.rank.length===0,$(r,p&&jn(p)),!p)return $(n,null);let T=p.ranks.rank.indexOf(
w.rank);return T!==-1&&document.activeElement!==o&&(c=T),c=Math.min(c,Math.max(0,p.ranks.rank.length-1)),o.setAttribute(
"aria-valuemax",String(Math.max(0,p.ranks.rank.length-1))),$(n,zr(p)),$(s,Vr(p,e)),d(),f()},destroy:()=>h.disconnect()}}
function zr(t){let{ranks:e}=t;if(!e.rank.length)return u("p",{class:"nothing"},"No rank has sent a heartbeat.");let n=g(
t.run.finished_at_s)||!t.run.is_live;return[u("ul",{class:"state-list"},Gn(e).map(({state:o,tone:s,mark:r,meaning:a,count:l})=>u(
"li",{key:o,title:a,"data-rank-state":s},u("span",{class:"state-mark","aria-hidden":"true"},r)," ",u("strong",{class:"nu\
mber"},O(l)),` ${o}`)),n?null:Vn("Heartbeat",ge(e.heartbeat_age_s)),n?null:Vn("Progress",ge(e.progress_age_s))),(t.hangs||
[]).filter(o=>o.sentence).map(o=>Yr(o))]}function Vn(t,e){if(!e)return null;let n=`${t}: median ${C(e.median)} ago, olde\
st ${C(e.oldest)}`;return u("li",{key:t,class:"muted"},n)}function Yr(t){return u("p",{class:"hang",key:t.group,"data-to\
ne":t.acknowledged?"watch":"bad",dir:"auto"},t.group?["Group ",b(t.group),": "]:null,I(t.sentence),t.acknowledged?" Ackn\
owledged.":null)}function Vr(t,e){let{ranks:n}=t,o=pe(t.hangs),{places:s,left_out:r}=zn(n,Ur,o);return s.length?[u("tabl\
e",{class:"rows"},u("caption",{class:"visually-hidden"},"Ranks that are lost, stuck or late"),u("thead",{},u("tr",{},["R\
ank","State","Heartbeat","Progress","Step","Open section"].map(a=>u("th",{scope:"col",class:qr.includes(a)&&"spare"},a)))),
u("tbody",{},s.map(a=>Xr(n,a,o,e)))),r?u("p",{class:"nothing"},`and ${O(r)} more, in the strip`):null]:null}function Xr(t,e,n,o){
let s=t.states[t.state[e]],{mark:r,tone:a}=ft(s),l=t.open_section[e];return u("tr",{key:t.rank[e]},u("th",{scope:"row"},
X(t.rank[e],o)," ",u("small",{},b(ye(t,e))),n.has(t.rank[e])&&u("span",{class:"label strong"},"the others wait for it")),
u("td",{class:"brief","data-rank-state":a},u("span",{class:"state-mark","aria-hidden":"true"},r),` ${s}`),u("td",{class:"\
number spare"},ke(t.heartbeat_age_s[e])),u("td",{class:"number"},ke(t.progress_age_s[e])),u("td",{class:"number spare"},
O(t.step[e])),u("td",{},l==null?"none":b(t.open_sections[l])))}function ke(t){return g(t)?`${C(t)} ago`:"never"}function ye(t,e){
return t.nodes[t.node[e]]??""}function Xn(t,e){let n=t.open_section[e],o=[`rank ${t.rank[e]}${ye(t,e)?` on ${ye(t,e)}`:""}\
: ${t.states[t.state[e]]??"unknown"}`,`heartbeat ${ke(t.heartbeat_age_s[e])}`];return g(t.step[e])&&o.push(`step ${O(t.step[e])}`),
n!=null&&o.push(`in ${t.open_sections[n]}`),A(o.join(", "))}function we(t,e){let n=document.createElement("div");return n.
className=e,t.append(n),n}function Zr(t){let e=document.createElement("canvas");return e.className="strip",e.tabIndex=0,
e.setAttribute("role","slider"),e.setAttribute("aria-label","All ranks; arrow keys move from rank to rank, Enter shows o\
ne"),e.setAttribute("aria-valuemin","0"),t.append(e),e}function Zn(t,e,n){if(!e||!n)return null;let o=Z(),s=Math.floor(t.
offsetX/o/e.width),r=Math.floor(t.offsetY/o/e.height)*e.columns+s;return s<e.columns&&r>=0&&r<n.ranks.rank.length?r:null}
function Jr(t,{ranks:e,culprits:n},o){let s=Yn(e.rank.length,t.clientWidth/Z(),Gr),r=ta(t,s.total),a=getComputedStyle(t),
l=m=>a.getPropertyValue(`--state-${m}`),i=e.states.map(m=>l(ft(m).tone)),c=l("unknown"),f=s.height>=4?1:0,d=m=>[m%s.columns*
s.width,Math.floor(m/s.columns)*s.height];return e.state.forEach((m,h)=>{r.fillStyle=i[m]||c;let[p,w]=d(h);r.fillRect(p,
w,s.width-f,s.height-f)}),s.width>=16&&ea(r,e,s,d,a),e.rank.forEach((m,h)=>{n.has(m)&&Jn(r,d(h),s,a.getPropertyValue("--\
text"))}),o!==null&&Jn(r,d(o),s,a.getPropertyValue("--focus")),s}function Qr(t,e){return t===e?!0:!t||t.state.length!==e.
state.length?!1:t.states.join()===e.states.join()&&t.state.every((n,o)=>n===e.state[o]&&t.rank[o]===e.rank[o])}function ta(t,e){
let n=(window.devicePixelRatio||1)*Z(),o=[Math.round(t.clientWidth*n/Z()),Math.round(e*n)];t.style.height=`${e/16}rem`,t.
width!==o[0]&&(t.width=o[0]),t.height!==o[1]&&(t.height=o[1]);let s=t.getContext("2d");return s.setTransform(n,0,0,n,0,0),
s.clearRect(0,0,t.clientWidth,e),s}function ea(t,e,n,o,s){t.fillStyle=s.getPropertyValue("--on-state"),t.font=`${Math.min(
11,Math.floor(n.width*.48))}px system-ui, sans-serif`,t.textAlign="center",t.textBaseline="middle",e.state.forEach((r,a)=>{
let{state:l,mark:i}=ft(e.states[r]),c=String(e.rank[a]),f=l==="ok"?c:n.width>=40?`${i} ${c}`:i,[d,m]=o(a);t.fillText(f,d+
(n.width-1)/2,m+n.height/2)})}function Jn(t,[e,n],o,s){t.strokeStyle=s,t.lineWidth=2,t.strokeRect(e+1,n+1,Math.max(o.width,
8)-3,Math.max(o.height,8)-3)}function to(t,e){let n=null,o=!1,s=()=>$(t,na(n,o,r));async function r(a){a.preventDefault();let l=t.querySelector("inpu\
t");o||!l.value.trim()||(o=!0,s(),n=await e.login(l.value.trim()),o=!1,n===null&&(l.value=""),s(),n!==null&&l.focus())}return{
update(a){let l=t.hidden&&a.state==="locked";t.hidden=a.state!=="locked",!t.hidden&&(s(),l&&t.querySelector("input").focus())}}}
function na(t,e,n){return[u("h1",{},"This collector asks for a token"),u("p",{},"Use one with the role read. It is kept \
until the browser is closed."),u("form",{onsubmit:n},u("label",{for:"login-token"},"Token"),u("input",{id:"login-token",
type:"password",autocomplete:"current-password",spellcheck:"false","aria-describedby":"login-problem"}),u("button",{type:"\
submit",disabled:e},"Log in")),u("p",{id:"login-problem",role:"alert"},t?`Not accepted: ${t}.`:"")]}function yt(t){let e=[t];for(;e[e.length-1].length>1;)e.push(oa(e[e.length-1]));return e}function oa(t){let e=new Uint8Array(
t.length+1>>1);for(let n=0,o=0;n<e.length;n+=1,o+=2){let s=t[o],r=o+1<t.length?t[o+1]:0;e[n]=r>s?r:s}return e}function Yt(t,e,n=0){
let o=new Uint8Array(e.length);for(let s=0;s<o.length;s+=1)o[s]=t[n+e[s]];return o}function L(t,e){let[n,o]=[t.cellWidth*
e,t.cellHeight*e],s=o>=1?0:Math.ceil(Math.log2(2/o));return{level:s,rows:2**s,columns:n>=1?1:Math.ceil(2/n)}}function Vt(t,e){
let n=Math.floor(t.firstRow/e.rows),o=Math.floor(t.firstColumn/e.columns);return{firstBin:n,bins:Math.max(0,Math.ceil(t.
endRow/e.rows)-n),firstGroup:o,groups:Math.max(0,Math.ceil(t.endColumn/e.columns)-o)}}function Xt(t,e,n,o,s,r){let{firstBin:a,
bins:l,firstGroup:i,groups:c}=s,f=new Uint8Array(l);for(let d=0;d<c;d+=1){let m=(i+d)*o.columns;sa(f,n,m,m+o.columns,o.level,
a);for(let h=0,p=d;h<l;h+=1,p+=e)t[p]=r[f[h]]}}function sa(t,e,n,o,s,r){t.fill(0);for(let a=n;a<Math.min(o,e.length);a+=
1){let l=e[a];if(!l)continue;let i=l[Math.min(s,l.length-1)];for(let c=0;c<t.length;c+=1){let f=i[r+c];f>t[c]&&(t[c]=f)}}}
function eo(t,e,n,o,s){let r=o-o%n.rows,a=s-s%n.columns,l=Math.min(e,r+n.rows),i={row:o,column:s,byte:t[s]?.[0][o]??0,ranks:l-
r};for(let c=a;c<Math.min(t.length,a+n.columns);c+=1){let f=t[c]?.[0];for(let d=r;f&&d<l;d+=1)f[d]>i.byte&&Object.assign(
i,{row:d,column:c,byte:f[d]})}return i}function oo(t,e,n,o){let s=e.getContext("2d"),r={request:0,width:0,height:0,ratio:1,scale:1,isGone:!1},a=()=>{let d=Z(),
m=(globalThis.devicePixelRatio||1)*d,[h,p]=[t.clientWidth/d,t.clientHeight/d];h===r.width&&p===r.height&&m===r.ratio||(Object.
assign(r,{width:h,height:p,ratio:m,scale:d}),e.width=Math.max(1,Math.round(h*m)),e.height=Math.max(1,Math.round(p*m)),o(
r),l())},l=()=>{r.request&&cancelAnimationFrame(r.request),r.request=0,!r.isGone&&r.width>0&&r.height>0&&n(s,r)},i=()=>{
!r.request&&!r.isGone&&(r.request=requestAnimationFrame(l))},c=new ResizeObserver(a);return c.observe(t),globalThis.addEventListener(
"resize",a),{schedule:i,measure:a,state:r,destroy:()=>{r.isGone=!0,cancelAnimationFrame(r.request),c.disconnect(),globalThis.
removeEventListener("resize",a)}}}function Zt(){let t=document.createElement("canvas"),e=t.getContext("2d"),n={canvas:t,
context:e,image:null,target:null,stride:0};return{bitmapFor:(s,r)=>((!n.image||s>n.image.width||r>n.image.height)&&(t.width=
Math.max(n.image?.width??0,Math.ceil(s/32)*32),t.height=Math.max(n.image?.height??0,Math.ceil(r/64)*64),n.image=e.createImageData(
t.width,t.height),n.target=new Uint32Array(n.image.data.buffer),n.stride=t.width),n)}}function so(t,e){return{empty:no(t,
e.empty,e.hatch,6,.8),silent:no(t,null,e.flag,7,2.2)}}function no(t,e,n,o,s){let r=Math.ceil(globalThis.devicePixelRatio||
1),a=document.createElement("canvas");a.width=o*r,a.height=o*r;let l=a.getContext("2d");l.scale(r,r),e&&(l.fillStyle=e,l.
fillRect(0,0,o,o)),l.strokeStyle=n,l.lineWidth=s,l.beginPath();for(let c of[-o,0,o])l.moveTo(c-1,o+1),l.lineTo(c+o+1,-1);
l.stroke();let i=t.createPattern(a,"repeat");return i.setTransform(new DOMMatrix().scale(1/r)),i}var ra=[24,40,60,90,120,180,240,360];function ao(t){return ra.find(e=>e>=t)??t}function bt(t){return{x:0,y:0,...be(t)}}function be(t){
let{width:e,height:n,rows:o,slots:s,mostCellWidth:r,mostCellHeight:a}=t;return{cellWidth:Math.min(r,e/Math.max(1,s)),cellHeight:Math.
min(a,n/Math.max(1,o))}}function K(t,e){let n=be(e),o=q(t.cellWidth,n.cellWidth,e.mostCellWidth),s=q(t.cellHeight,n.cellHeight,
e.mostCellHeight);return{x:q(t.x,0,ro(e.columns,e.width/o)),y:q(t.y,0,ro(e.rows,e.height/s)),cellWidth:o,cellHeight:s}}function ro(t,e){
let n=t-e;return n>1e-6?n:0}function q(t,e,n){return Math.max(e,Math.min(Math.max(e,n),Number.isFinite(t)?t:e))}function lo(t,e,n,o){
let s=t.x-n/t.cellWidth,r=t.y-o/t.cellHeight;return K({...t,x:s,y:r},e)}function io(t,e,n,o,s,r){let a=K({...t,cellWidth:t.
cellWidth*n,cellHeight:t.cellHeight*o},e),l=t.x+s/t.cellWidth-s/a.cellWidth,i=t.y+r/t.cellHeight-r/a.cellHeight;return K(
{...a,x:l,y:i},e)}function _e(t,e,n,o){let s=Math.floor(t.x+n/t.cellWidth),r=Math.floor(t.y+o/t.cellHeight);return n>=0&&
o>=0&&n<e.width&&o<e.height&&s>=0&&r>=0&&s<e.columns&&r<e.rows?{row:r,column:s}:null}function co(t,e,n,o){let s=e.width/
t.cellWidth,r=e.height/t.cellHeight,a=q(t.x,o+1-s,o),l=q(t.y,n+1-r,n);return K({...t,x:a,y:l},e)}function _t(t,e){let n=(o,s,r,a)=>Math.
min(a,Math.ceil(o+s/r-1e-6));return{firstRow:Math.max(0,Math.floor(t.y+1e-6)),endRow:n(t.y,e.height,t.cellHeight,e.rows),
firstColumn:Math.max(0,Math.floor(t.x+1e-6)),endColumn:n(t.x,e.width,t.cellWidth,e.columns)}}function xe(t,e){let n=be(e);
return{across:t.cellWidth<=n.cellWidth*1.001,down:t.cellHeight<=n.cellHeight*1.001}}function xt(t,e){return{across:e.columns*
t.cellWidth>e.width+.5,down:e.rows*t.cellHeight>e.height+.5}}function Jt(t,e){return t.x+e.width/t.cellWidth>=e.columns-
.01}function Te(t,e){let n=1;for(let o=0;n*t<e;o+=1)n=[1,2,5][o%3]*10**Math.floor(o/3);return n}function uo(t,e){let n=Zt(),o={grid:null,pixels:null,width:0,height:0,patch:null,bitmap:null},s=null,r=c=>{s=c;let[f,d]=[
t.clientWidth/c.scale,Math.min(t.clientHeight/c.scale,c.layout.top+c.bounds.height)];f===0||c.grid.rows===0||(aa(o,n,c,f,
d),la(t,o,c,f,d))},a=c=>{let f=t.getBoundingClientRect(),{view:d,bounds:m}=s,h=(c.clientX-f.left)/s.scale/o.width*m.columns-
m.width/d.cellWidth/2,p=((c.clientY-f.top)/s.scale-s.layout.top)/Se(s,o.height)*m.rows-m.height/d.cellHeight/2;e(K({...d,
x:h,y:p},m))},l=c=>{t.setPointerCapture(c.pointerId),a(c)},i=c=>t.hasPointerCapture(c.pointerId)&&a(c);return t.addEventListener(
"pointerdown",l),t.addEventListener("pointermove",i),{update:r}}function Se(t,e){return e-t.layout.top}function aa(t,e,n,o,s){
if(t.grid===n.grid&&t.pixels===n.pixels&&t.width===o&&t.height===s)return;let{rows:a,columns:l,levels:i}=n.grid,c=L({cellWidth:o/
l,cellHeight:Se(n,s)/a},1),f=Vt({firstRow:0,endRow:a,firstColumn:0,endColumn:l},c),d=e.bitmapFor(f.groups,f.bins);Xt(d.target,
d.stride,i,c,f,n.pixels),d.context.putImageData(d.image,0,0,0,0,f.groups,f.bins),Object.assign(t,{grid:n.grid,pixels:n.pixels,
width:o,height:s,patch:f,bitmap:d,detail:c})}function la(t,e,n,o,s){let{view:r,bounds:a,palette:l,ratio:i,layout:c,grid:f}=n,
d=t.clientHeight/n.scale,[m,h]=[Math.round(o*i),Math.round(d*i)];(t.width!==m||t.height!==h)&&Object.assign(t,{width:m,height:h});
let p=t.getContext("2d"),w=Se(n,s);p.setTransform(i,0,0,i,0,0),p.clearRect(0,0,o,d),p.translate(0,c.top),p.fillStyle=l.empty,
p.fillRect(0,0,o,w);let{patch:T,bitmap:y,detail:k}=e,x={x:T.groups*k.columns/f.columns,y:T.bins*k.rows/f.rows};p.imageSmoothingEnabled=
!1,p.drawImage(y.canvas,0,0,T.groups,T.bins,0,0,o*x.x,w*x.y),p.clearRect(0,w,o,d);let M=xt(r,a);!M.across&&!M.down||ia(p,
n,o,w)}function ia(t,{view:e,bounds:n,palette:o},s,r){let a=(d,m,h)=>Math.min(1,d/m/h),l=e.x/n.columns*s,i=e.y/n.rows*r,
c=Math.max(4,a(n.width,e.cellWidth,n.columns)*s),f=Math.max(4,a(n.height,e.cellHeight,n.rows)*r);t.fillStyle=o.surface,t.
globalAlpha=.55,t.fillRect(0,0,s,i),t.fillRect(0,i+f,s,r-i-f),t.globalAlpha=1,t.strokeStyle=o.accent,t.lineWidth=2,t.strokeRect(
l+1,Math.min(i+1,r-4),Math.max(3,c-2),Math.max(3,f-2))}function mo({it:t,show:e,found:n,surface:o,tooltip:s,spoken:r,on:a}){let l=(k,x)=>[k-t.layout.left,x-t.layout.top],i=()=>[
t.bounds.width/2+t.layout.left,t.bounds.height/2+t.layout.top],c=(k,x,M)=>s.show(a.words(n(k)),x*t.scale,M*t.scale),f=()=>{
r.textContent=A(a.words(n(t.focus)).filter(Boolean).join(", "));let k=t.layout.left+(t.focus.column+1-t.view.x)*t.view.cellWidth;
c(t.focus,k,t.layout.top+(t.focus.row+1-t.view.y)*t.view.cellHeight)},d=k=>{let x=k?.row===t.hover?.row&&k?.column===t.hover?.
column;t.hover=k,x||o.schedule()},m=(k,x)=>{t.isPointed=k!==null,t.pointedAt_ms=performance.now();let M=k===null||!t.view?
null:_e(t.view,t.bounds,...l(k,x)),v=M&&n(M);d(v&&{row:v.row,column:v.column}),M?c(M,k,x):s.hide()},h=(k,x)=>{let M=_e(t.
view,t.bounds,...l(k,x));M&&(t.focus=M,a.pick(n(M)))},p=(k,x,M,v)=>{let rt=M===void 0?i():[M,v];return e(io(t.view,t.bounds,
k,x,...l(...rt)))},w=(k,x,M)=>bt(t.bounds).cellHeight<t.bounds.mostCellHeight*.999?p(1,k,x,M):p(k,1,x,M),T=()=>{let{grid:k}=t;
if(t.focus||k.rows===0||k.columns===0)return;if(k.startCell!==null){t.focus={row:Math.floor(k.startCell/k.columns),column:k.
startCell%k.columns};return}let x=k.selectedRow??k.flaggedRows[0]??0;t.focus={row:x,column:k.selectedColumn??(k.hasSlots?
k.columns-1:0)}},y=(k,x)=>{let{grid:M}=t;if(T(),!t.focus)return;t.isFocused=!0;let v=L(t.view,t.ratio);t.focus={row:fo(t.
focus.row,k,v.rows,M.rows),column:fo(t.focus.column,x,v.columns,M.columns)},t.view=co(t.view,t.bounds,t.focus.row,t.focus.
column),o.schedule(),f()};return{pointAt:m,pickAt:h,zoomBy:p,zoomRows:w,moveFocus:y,panBy:(k,x)=>e(lo(t.view,t.bounds,k,
x)),fit:()=>e(bt(t.bounds)),pickFocus:()=>t.focus&&a.pick(n(t.focus)),leaveFocus:()=>t.focus?(t.focus=null,t.isFocused=!1,
s.hide(),o.schedule(),!0):!1,focus:k=>{t.isFocused=k,o.schedule(),!(!k||!t.view)&&(T(),t.focus&&y(0,0))},blur:()=>{t.isFocused=
!1,s.hide(),o.schedule()}}}function fo(t,e,n,o){return e===1/0?o-1:e===-1/0?0:q(t+e*n,0,o-1)}var ca=3.2,ua=24;function Oe({context:t,names:e},n,o,s=!1){let r=`${o}|${n}`;return e.has(r)||e.set(r,fa(t,n,o,s)),e.get(
r)}function fa(t,e,n,o){let s=e,r=()=>s===e?e:o?`\u2026${s}`:`${s}\u2026`;for(;s.length>1&&t.measureText(r()).width>n;)s=
o?s.slice(1):s.slice(0,-1);return r()}function Me({view:t,bounds:e,layout:n},o){let s=(o+.5-t.y)*t.cellHeight;return n.top+
Math.max(5,Math.min(e.height-5,s))}function ho(t,e){let{context:n,grid:o,view:s,layout:r,palette:a}=t,l=Te(s.cellHeight,
14);n.textAlign="right",n.textBaseline="middle";let i=(d,m)=>{let h=Me(t,d);return n.fillStyle=m,n.fillText(Oe(t,o.rowName(
d),r.left-15,!0),r.left-13,h),h},c=[],f=(d,m)=>{if(d===null||d<e.firstRow||d>=e.endRow)return;let h=Me(t,d);c.every(p=>Math.
abs(h-p)>=12)&&c.push(i(d,m))};f(o.selectedRow,a.accent);for(let d of o.flaggedRows)c.length<ua&&f(d,a.flag);for(let d=Math.
ceil(e.firstRow/l)*l;d<e.endRow;d+=l)f(d,a.quiet)}function po(t,e){let{context:n,grid:o,view:s,bounds:r,layout:a,palette:l}=t;
if(n.fillStyle=l.quiet,o.hasNamesOnTop)return da(t,e);let i=a.top>a.bottom,c=Te(s.cellWidth,o.columnLabelRoom),f=i?a.top-
9:a.top+Math.min(r.height,r.rows*s.cellHeight)+12;n.textAlign="center",n.textBaseline="middle";for(let d=Math.ceil(e.firstColumn/
c)*c;d<e.endColumn;d+=c){let m=(d+.5-s.x)*s.cellWidth;if(m<0||m>r.width)continue;let[h,p]=[o.columnName(d),o.columnName(
d).length*ca];n.fillText(h,a.left+Math.max(p-8,Math.min(r.width+a.right-p,m)),f)}n.textAlign="right",n.fillText(o.corner,
a.left-13,f)}function da(t,e){let{context:n,grid:o,view:s,layout:r,palette:a}=t,{isSlanted:l}=r,i=Math.max(1,Math.ceil(13/
s.cellWidth)),c=l?(r.top-14)*1.3:s.cellWidth-4;n.textBaseline=l?"middle":"alphabetic",n.textAlign=l?"left":"center";for(let f=e.
firstColumn;f<e.endColumn;f+=i){n.save(),n.translate(r.left+(f+.5-s.x)*s.cellWidth,r.top-8),l&&n.rotate(-Math.PI/4),n.fillStyle=
f===o.selectedColumn?a.accent:a.quiet;let d=l?"":o.columnKind(f);n.fillText(Oe(t,o.columnName(f),c),0,d?-13:0),n.fillStyle=
a.quiet,d&&n.fillText(Oe(t,d,c),0,0),n.restore()}}function go(t,e){let{context:n,grid:o,layout:s,palette:r}=t;n.fillStyle=
r.flag,n.strokeStyle=r.flag,n.lineWidth=1;let a=-10;for(let l of o.flaggedRows){if(l<e.firstRow||l>=e.endRow)continue;let i=Me(
t,l);i-a<1||(a=i,n.beginPath(),n.moveTo(s.left-2,i),n.lineTo(s.left-10,i-4.5),n.lineTo(s.left-10,i+4.5),n.closePath(),o.
suspectRows.has(l)?n.stroke():n.fill())}}var ko=13,ma=700,wo={width:34,height:15};function yo(t){let{context:e,bounds:n,layout:o,palette:s,ratio:r}=t,a=_t(t.view,
n);e.setTransform(r,0,0,r,0,0),e.clearRect(0,0,o.left+n.width+o.right,o.top+n.height+o.bottom),e.font=`11px ${s.font}`,ho(
t,a),po(t,a),go(t,a),e.save(),e.beginPath(),e.rect(o.left,o.top,n.width,n.height),e.clip(),e.translate(o.left,o.top),ha(
t,a),wa(t),ba(t,a),_a(t,a),xa(t),e.restore(),Ta(t)}function ha(t,e){let{view:n,ratio:o}=t,s=(e.endRow-e.firstRow)*(e.endColumn-
e.firstColumn);s<=0||(Math.min(n.cellWidth,n.cellHeight)>=ko&&s<=ma?ka(t,e):(pa(t,e,L(n,o)),ga(t,e)),n.cellWidth>=wo.width&&
n.cellHeight>=wo.height&&ya(t,e))}function pa(t,e,n){let{context:o,grid:s,view:r,bounds:a,patterns:l,pixels:i,scratch:c}=t,
f=Vt(e,n),d=c.bitmapFor(f.groups,f.bins);Xt(d.target,d.stride,s.levels,n,f,i),d.context.putImageData(d.image,0,0,0,0,f.groups,
f.bins);let m=(f.firstGroup*n.columns-r.x)*r.cellWidth,h=(f.firstBin*n.rows-r.y)*r.cellHeight;o.save(),o.beginPath(),o.rect(
-r.x*r.cellWidth,-r.y*r.cellHeight,a.columns*r.cellWidth,a.rows*r.cellHeight),o.clip(),o.fillStyle=l.empty,o.fillRect(0,
0,a.width,a.height),o.imageSmoothingEnabled=!1,o.drawImage(d.canvas,0,0,f.groups,f.bins,m,h,f.groups*n.columns*r.cellWidth,
f.bins*n.rows*r.cellHeight),o.restore()}function ga({context:t,view:e,palette:n,ratio:o},s){let[r,a]=[1/o,m=>Math.round(
m*o)/o],l=(m,h,p)=>a((m-h)*p),[i,c]=[l(s.firstColumn,e.x,e.cellWidth),l(s.endColumn,e.x,e.cellWidth)],[f,d]=[l(s.firstRow,
e.y,e.cellHeight),l(s.endRow,e.y,e.cellHeight)];if(t.fillStyle=n.surface,e.cellHeight>=5){let m=e.cellHeight>=12?2:Math.
max(r,1);for(let h=s.firstRow+1;h<s.endRow;h+=1)t.fillRect(i,l(h,e.y,e.cellHeight)-m/2,c-i,m)}if(!(e.cellWidth<8))for(let m=s.
firstColumn+1;m<s.endColumn;m+=1)t.fillRect(l(m,e.x,e.cellWidth)-.5,f,1,d-f)}function wa({context:t,grid:e,view:n,palette:o}){
if(e.cells===null||e.cells===e.rows*e.columns)return;let[s,r]=[Math.floor(e.cells/e.columns),e.cells%e.columns],a=(r-n.x)*
n.cellWidth;t.fillStyle=o.surface,t.fillRect(a,(s-n.y)*n.cellHeight,(e.columns-r)*n.cellWidth+1,n.cellHeight+1)}function bo({
grid:t,view:e},n,o){for(let s=n.firstColumn;s<n.endColumn;s+=1){let r=t.levels[s]?.[0],a=(s-e.x)*e.cellWidth;for(let l=n.
firstRow;l<n.endRow;l+=1)o(a,(l-e.y)*e.cellHeight,r?r[l]:0,l,s)}}function ka(t,e){let{context:n,view:o,styles:s,patterns:r}=t,
a=Math.min(4,o.cellWidth/5,o.cellHeight/5);bo(t,e,(l,i,c)=>{n.fillStyle=c?s[c].fill:r.empty,n.beginPath(),n.roundRect(l+
1,i+1,o.cellWidth-2,o.cellHeight-2,a),n.fill()})}function ya(t,e){let{context:n,grid:o,view:s,palette:r,styles:a}=t;n.textAlign=
"center",n.textBaseline="middle",n.font=`${s.cellHeight>=26&&s.cellWidth>=48?12.5:11}px ${r.font}`,bo(t,e,(l,i,c,f,d)=>{
if(!c||o.hatched.has(f*o.columns+d))return;n.fillStyle=a[c].ink;let m=o.exactAt?o.exactAt(f,d):Ut(c);n.fillText(Wn(m),l+
s.cellWidth/2,i+s.cellHeight/2+.5)}),n.font=`11px ${r.font}`}function ba({context:t,grid:e,view:n,palette:o,patterns:s},r){
if(e.hatched.size===0)return;let a=Math.min(n.cellWidth,n.cellHeight)>=ko?1:0;for(let l of e.hatched){let[i,c]=[Math.floor(
l/e.columns),l%e.columns];if(!(i>=r.firstRow&&i<r.endRow&&c>=r.firstColumn&&c<r.endColumn))continue;let d=(c-n.x)*n.cellWidth+
a,m=(i-n.y)*n.cellHeight+a,h=Math.max(3,n.cellWidth-2*a),p=Math.max(3,n.cellHeight-2*a);t.fillStyle=o.surface,t.fillRect(
d,m,h,p),t.fillStyle=s.silent,t.fillRect(d,m,h,p),t.strokeStyle=o.flag,t.lineWidth=1,t.strokeRect(d+.5,m+.5,h-1,p-1)}}function _a({
context:t,grid:e,view:n,bounds:o,palette:s},r){t.fillStyle=s.quiet;for(let a of e.rowBreaks)n.cellHeight<3||a<=r.firstRow||
a>=r.endRow||t.fillRect(0,Math.round((a-n.y)*n.cellHeight)-.5,Math.min(o.width,(o.columns-n.x)*n.cellWidth),1);for(let a of e.
columnBreaks){if(a<=r.firstColumn||a>=r.endColumn)continue;let l=Math.round((a-n.x)*n.cellWidth);for(let i=0;i<Math.min(
o.height,o.rows*n.cellHeight);i+=6)t.fillRect(l-1,i,2,3)}}function xa({context:t,grid:e,view:n,bounds:o,palette:s}){if(e.
selectedRow===null)return;let r=(e.selectedRow-n.y)*n.cellHeight;if(r>o.height||r+n.cellHeight<0)return;t.strokeStyle=s.
accent,t.lineWidth=1.5;let a=Math.min(o.width,(o.columns-n.x)*n.cellWidth);t.strokeRect(.75,r-.75,a-1.5,n.cellHeight+1.5)}
function Ta({context:t,grid:e,view:n,layout:o,palette:s,hover:r,focus:a,isFocused:l}){let i=(c,f,d)=>{let[m,h]=[Math.max(
5,n.cellWidth),Math.max(5,n.cellHeight)],p=o.left+(c.column+.5-n.x)*n.cellWidth-m/2,w=o.top+(c.row+.5-n.y)*n.cellHeight-
h/2;t.strokeStyle=f,t.lineWidth=d,t.strokeRect(p,w,m,h)};e.markedCell!==null&&i({row:Math.floor(e.markedCell/e.columns),
column:e.markedCell%e.columns},s.accent,2.5),r&&i(r,s.ink,1.5),!(!a||!l)&&(i(a,s.surface,5),i(a,s.accent,2.5))}function xo(t,e,n=()=>1){let o=r=>{let a=t.getBoundingClientRect();return[(r.clientX-a.left)/n(),(r.clientY-a.top)/n()]},
s=[...Sa(t,e,o),["wheel",r=>Ma(r,e,o)],["dblclick",r=>e.zoomRows(r.shiftKey?.4:2.5,...o(r))],["keydown",r=>Ea(r,e)],["fo\
cus",()=>e.focus(t.matches(":focus-visible"))],["blur",()=>e.blur()]];for(let[r,a]of s)t.addEventListener(r,a,{passive:!1});
return()=>s.forEach(([r,a])=>t.removeEventListener(r,a))}function Sa(t,e,n){let o=new Map,s=0,r=i=>{i.button>0||(t.setPointerCapture?.(
i.pointerId),o.set(i.pointerId,n(i)),s=o.size>1?1/0:0)},a=i=>{let[c,f]=n(i),d=o.get(i.pointerId);if(!d){i.pointerType!==
"touch"&&e.pointAt(c,f);return}o.size>1&&Oa(o,i.pointerId,[c,f],e),s+=Math.hypot(c-d[0],f-d[1]),o.size===1&&s>4&&(e.pointAt(
null),e.panBy(c-d[0],f-d[1])),o.set(i.pointerId,[c,f])},l=i=>{!o.delete(i.pointerId)||i.type==="pointercancel"||s>4||(e.
pointAt(...n(i)),e.pickAt(...n(i)))};return[["pointerdown",r],["pointermove",a],["pointerup",l],["pointercancel",l],["po\
interleave",i=>i.pointerType!=="touch"&&e.pointAt(null)]]}function Oa(t,e,n,o){let[s]=[...t].filter(([l])=>l!==e).map(([
,l])=>l),r=t.get(e),a=l=>{let[i,c]=[Math.abs(r[l]-s[l]),Math.abs(n[l]-s[l])];return i<24||c<24?1:c/i};o.panBy((n[0]-r[0])/
2,(n[1]-r[1])/2),o.zoomBy(a(0),a(1),(n[0]+s[0])/2,(n[1]+s[1])/2)}function Ma(t,e,n){let o=t.deltaMode===1?16:t.deltaMode===
2?400:1,[s,r]=[t.deltaX*o,t.deltaY*o],[a,l]=n(t);if(t.ctrlKey||t.metaKey){let c=Math.exp(-Math.max(-60,Math.min(60,r||s))/
150);t.shiftKey?e.zoomBy(c,1,a,l):e.zoomRows(c,a,l),e.pointAt(a,l),t.preventDefault();return}(t.shiftKey&&s===0?e.panBy(
-r,0):e.panBy(-s,-r))&&t.preventDefault(),e.pointAt(a,l)}var $a={ArrowUp:[-1,0],ArrowDown:[1,0],ArrowLeft:[0,-1],ArrowRight:[
0,1],PageUp:[-20,0],PageDown:[20,0]},_o=60;function Ea(t,e){t.altKey||t.metaKey||Ra(t,e)&&t.preventDefault()}function Ra(t,e){
let n=$a[t.key];if(n&&t.shiftKey)return e.panBy(-n[1]*_o,-n[0]*_o),!0;if(n&&!t.ctrlKey)return e.moveFocus(...n),!0;let o={
Home:()=>t.ctrlKey?e.moveFocus(-1/0,0):e.moveFocus(0,-1/0),End:()=>t.ctrlKey?e.moveFocus(1/0,0):e.moveFocus(0,1/0),Enter:()=>e.
pickFocus()," ":()=>e.pickFocus(),Escape:()=>e.leaveFocus(),"+":()=>e.zoomRows(1.4),"=":()=>e.zoomRows(1.4),"-":()=>e.zoomRows(
1/1.4),"]":()=>e.zoomBy(1.4,1),"[":()=>e.zoomBy(1/1.4,1),0:()=>e.fit()};return t.ctrlKey&&!["Home","End"].includes(t.key)||
!Object.hasOwn(o,t.key)?!1:o[t.key]()!==!1}var Aa=6e4,J={rows:0,columns:0,levels:[],rowKeys:[],columnKeys:[],rowName:()=>"",columnName:()=>"",columnKind:()=>"",columnLabelRoom:70,
corner:"",flaggedRows:[],suspectRows:new Set,isRanking:!1,selectedRow:null,selectedColumn:null,markedCell:null,startCell:null,
rowBreaks:[],columnBreaks:[],hatched:new Set,cells:null,hasNamesOnTop:!1,layoutFor:null,hasSlots:!1,mostCellWidth:60,mostCellHeight:30};
function To({host:t,canvas:e,tooltip:n,spoken:o,layout:s,on:r}){let a={grid:J,view:null,bounds:null,layout:s,palette:null,
pixels:null,styles:null,patterns:null,scratch:Zt(),names:new Map,hover:null,focus:null,isFocused:!1,isPointed:!1,pointedAt_ms:0,
ratio:1,scale:1,draws:0},c=oo(t,e,(y,k)=>{if(!a.view)return;a.palette||Object.assign(a,va(t,y)),a.draws+=1,yo(Object.assign(
a,{context:y,ratio:k.ratio}));let{across:x,down:M}=xt(a.view,a.bounds),v=x||M?"none":"pan-y";e.style.touchAction!==v&&(e.
style.touchAction=v),r.changed(a)},y=>{a.patterns=a.palette=null,Object.assign(a,{ratio:y.ratio,scale:y.scale}),Na(a,y)}),
f=y=>{let k=a.view===null||Object.keys(y).some(x=>y[x]!==a.view[x]);return a.view=y,k&&c.schedule(),k},m=mo({it:a,show:f,
found:y=>eo(a.grid.levels,a.grid.rows,L(a.view,a.ratio),y.row,y.column),surface:c,tooltip:n,spoken:o,on:r}),h=xo(e,m,()=>c.
state.scale),p=Bn(()=>{a.palette=null,c.schedule()});return{it:a,actions:m,setGrid:(y,k=!1)=>{let x=a.grid;a.grid=y,a.names.
clear(),c.measure(),a.bounds&&c.state.width&&Ca(a,x,c.state,k),c.schedule()},show:f,destroy:()=>[h,p,c.destroy].forEach(
y=>y())}}function va(t,e){let n=Rn(t);return{palette:n,pixels:An(n),styles:vn(n),patterns:so(e,n)}}function So(t,e){let{
grid:n}=t;n.layoutFor&&(t.layout=n.layoutFor(e.width));let{layout:o}=t;return{columns:n.columns,rows:n.rows,slots:n.hasSlots?
ao(n.columns):n.columns,width:Math.max(1,e.width-o.left-o.right),height:Math.max(1,e.height-o.top-o.bottom),mostCellWidth:n.
mostCellWidth,mostCellHeight:n.mostCellHeight}}function Na(t,e){let n=t.view?xe(t.view,t.bounds):{across:!0,down:!0};t.bounds=
So(t,e);let o=bt(t.bounds),s={...t.view??o};n.across&&(s.cellWidth=o.cellWidth),n.down&&(s.cellHeight=o.cellHeight),t.view=
K(s,t.bounds)}function $e(t){return t.isFocused||t.isPointed&&performance.now()-t.pointedAt_ms<Aa}function Ca(t,e,n,o){let s=$e(
t),r=Jt(t.view,t.bounds),a=xe(t.view,t.bounds),l=Ha(e,t.grid);t.bounds=So(t,n);let i=bt(t.bounds),c={...t.view,x:t.view.
x-l};(a.down||e.rows===0)&&(c.cellHeight=i.cellHeight),(e.columns===0||a.across&&!s)&&(c.cellWidth=i.cellWidth),r&&!s&&(c.
x=t.grid.columns),o?c.y=0:t.grid.isRanking||(c.y+=Wa(e,t.grid,c.y)),t.view=s&&l>0?{...K(c,t.bounds),x:c.x}:K(c,t.bounds),
t.hover=null,t.focus=La(t.focus,e,t.grid,l)}function Ha(t,e){if(t.columns===0)return 0;for(let n=0;n<t.columns;n+=1){let o=e.
columnKeys.indexOf(t.columnKeys[n]);if(o>=0)return n-o}return 0}function Wa(t,e,n){let o=Math.floor(n);if(t.rows===0||t.
rowKeys[o]===e.rowKeys[o])return 0;let s=e.rowKeys.indexOf(t.rowKeys[o]);return s<0?0:s-o}function La(t,e,n,o){if(!t||n.
rows===0||n.columns===0)return null;let s=n.rowKeys.indexOf(e.rowKeys[t.row]);return{row:s<0?q(t.row,0,n.rows-1):s,column:q(
t.column-o,0,n.columns-1)}}var Ia="Arrow keys move from cell to cell, Home and End to the ends, Enter chooses the rank. Plus and minus zoom, bracke\
ts zoom across, 0 shows all, Shift with arrows pans, Escape leaves.";function Tt(t,{part:e,label:n,layout:o,marks:s,hasMinimap:r,
tableCaption:a,tableColumn:l,on:i}){t.dataset.part||(t.dataset.part=e),t.classList.add("chart");let c=_("p","chart-keys",
{id:`${e}-keys`},Ia),f=_("canvas","chart-canvas",{tabindex:"0",role:"application","aria-roledescription":"heat map","ari\
a-label":n,"aria-describedby":`${e}-keys`}),d=_("div","chart-stage",{},f),m=_("canvas","chart-minimap",{"aria-hidden":"t\
rue"}),h=_("p","chart-note"),p=_("div","chart-tools"),w=In(s),T=Fn(),y=Dn(a,l),k=_("div","chart-body",{},d,...r?[m]:[]),
x=_("div","chart-foot",{},w.element,h);t.replaceChildren(p,k,x,c,T,y.element);let M=null,v=null,rt=j=>{j.palette!==M&&w.
setPalette(M=j.palette),v?.update(j),i.changed(j)},dt=To({host:d,canvas:f,tooltip:Pn(d),spoken:T,layout:o,on:{...i,changed:rt}});
return r&&(v=uo(m,dt.show)),{heat:dt,setHeight:j=>{let mt=`${j/16}rem`;k.style.height!==mt&&(k.style.height=mt)},canvas:f,
tools:p,stage:d,note:h,body:k,table:y,destroy:()=>{dt.destroy(),t.replaceChildren(),t.classList.remove("chart")}}}function Qt(t,e,n){
let o=(r,a,l)=>_("span","chart-group",{role:"group","aria-label":`zoom ${r}`},_("span","chart-group-word",{},r),kt("\u2212",
`${r}: zoom out`,l),kt("+",`${r}: zoom in`,a)),s=[o(e,()=>t.zoomBy(1,1.6),()=>t.zoomBy(1,.625))];return n&&s.push(o(n,()=>t.
zoomBy(1.6,1),()=>t.zoomBy(1/1.6,1))),[...s,kt("all","show all",()=>t.fit())]}var Pa=10,Fa=["lost","missing"],te=[{name:"rank",words:"by rank"},{name:"node",words:"by host"},{name:"worst",words:"wor\
st first"},{name:"flagged",words:"only flagged"}],Ee=new WeakMap;function G(t){if(!Ee.has(t)){let[e,n]=[Da(t),Ba(t)];Ee.
set(t,{known:e,flagged:n,worst:Ua(t,e,n)})}return Ee.get(t)}function Da(t){let{ranks:e}=t,n=e.nodes?.map(A),o=(s,r)=>r==
null?null:s?.[r]??null;return new Map(e.rank.map((s,r)=>[s,{index:r,nodeIndex:e.node?.[r]??-1,node:o(n,e.node?.[r]),role:e.
role?.[r]??null,state:o(e.states,e.state?.[r])}]))}function Ba(t){let e=new Map,n=(o,s,r=!0)=>{o!=null&&(!e.has(o)||r&&!e.
get(o).isSure)&&e.set(o,{why:s,isSure:r})};for(let o of t.hangs??[])o.state!=="lost"&&(o.culprits??[]).forEach(s=>n(s,"h\
ang"));for(let o of t.verdicts??[]){if(!o.stands||o.silenced)continue;let s=o.state!=="suspect",r=s?"slow":"suspect";o.scope===
"rank"&&n(o.rank,r,s),o.scope==="host"&&Ka(t,o.node).forEach(a=>n(a,`${r} host`,s))}return(t.ranks?.state??[]).forEach((o,s)=>{
let r=t.ranks.states[o];Fa.includes(r)&&n(t.ranks.rank[s],r)}),e}function Ka(t,e){let{rank:n,node:o,nodes:s}=t.ranks;return n.
filter((r,a)=>s[o[a]]===e)}function ee(t,e,n,o,s){let r=e.ranks.map((l,i)=>i),a=l=>e.ranks[l];if(t==="flagged")return r.
filter(l=>o.has(a(l))||a(l)===s);if(t==="node"){let l=e.ranks.map(i=>n.get(i)?.nodeIndex??1/0);return r.sort((i,c)=>l[i]-
l[c]||a(i)-a(c))}if(t==="worst"){let l=ja(e,Pa);return r.sort((i,c)=>l[c]-l[i]||a(i)-a(c))}return r}function ja(t,e){let n=t.
ranks.length,[o,s]=[new Float64Array(n),new Uint16Array(n)],r=Math.max(0,t.columns.length-e);for(let a=r*n;a<t.bytes.length;a+=
1)t.bytes[a]!==0&&(o[a%n]+=t.bytes[a],s[a%n]+=1);return o.map((a,l)=>s[l]?a/s[l]:0)}function ne(t,e){let[n,o]=[[],new Set];
return e.size===0?{flaggedRows:n,suspectRows:o}:(t.forEach((s,r)=>{let a=e.get(s);a&&(n.push(r),a.isSure||o.add(r))}),{flaggedRows:n,
suspectRows:o})}function Ua(t,e,n,o=20){let s=t.slowdowns?.overall??[],{rank:r}=t.ranks,a=wt(t.ranks,s),l=r.map((c,f)=>(n.
has(c)?1e6:0)+(s[f]??-1)),i=r.map((c,f)=>f).filter(c=>l[c]>=0);return i.sort((c,f)=>l[f]-l[c]||c-f),i.slice(0,o).map(c=>({
rank:r[c],slowdown:s[c]??null,isLone:a(c),node:e.get(r[c]).node,state:e.get(r[c]).state,why:n.get(r[c])?.why??null}))}var qa={named:.03,otherwise:.05},Ga=100,za=16;function Mo(t){let e=Ya(t),n=[];for(let o=0;o<e.columns;o+=1){let s=new Uint8Array(
e.rows);for(let r=0;r<e.rows;r+=1)s[r]=et(e.at(r,o)?.slowdown);n.push(yt(s))}return{...e,levels:n,hot:tl(e,t.heat.pattern)}}
function Ya(t){let{cells:e,silent:n}=t.heat,o=Va(t),s=new Map,r=(a,l,i)=>{let c=o.placeOf(a,l);s.has(c)||s.set(c,{stage:a,
data:l,slowdown:i,ranks:[]})};for(let[a,l,i]of e)r(a,l,i);for(let[a,l]of n)r(a,l,null);return{...o,placeOfRank:Za(t,s,o),
silent:new Set(n.map(([a,l])=>o.placeOf(a,l))),known:G(t).known,at:(a,l)=>s.get(a*o.columns+l)}}function Va(t){let{stages:e,
data_ranks:n}=t.heat,[o,s]=[Oo(e),Oo(n)],r=t.heat.by_rank??(!t.ranks.dp&&!t.ranks.pp);return e.length>1||n.length<=za?{rows:n.
length?e.length:0,columns:n.length,count:e.length*n.length,isRanks:r,rowName:a=>r?"ranks":`stage ${e[a]}`,columnName:a=>String(
n[a]),corner:r?"rank":"data rank",placeOf:(a,l)=>o.get(a)*n.length+s.get(l)}:Xa(t,n,s,r)}function Xa(t,e,n,o){let s=o?Ja(
t.ranks):0,r=Qa(e.length,s||8),{known:a}=G(t),l=i=>{let c=e[i*r];return r===s?a.get(c)?.node??`rank ${c}`:`${o?"rank":"d\
ata"} ${c}`};return{rows:Math.ceil(e.length/r),columns:r,count:e.length,isRanks:o,rowName:l,columnName:i=>`+${i}`,corner:o?
"rank":"data rank",placeOf:(i,c)=>n.get(c)}}function Oo(t){return new Map(t.map((e,n)=>[e,n]))}function Za(t,e,{isRanks:n,
placeOf:o}){let{rank:s,pp:r}=t.ranks,a=t.ranks.dp??t.heat.data_of_rank,l=t.slowdowns?.overall??[],i=new Map;return s.forEach(
(c,f)=>{let d=n?o(0,c):o(r?.[f]??0,a?.[f]??0),m=e.get(d);if(!m)return;i.set(c,d),m.ranks.push(c);let h=l[f]??0;(m.rank===
void 0||h>m.worst)&&Object.assign(m,{rank:c,worst:h})}),i}function Ja({node:t}){let e=new Map;for(let o of t??[])e.set(o,
(e.get(o)??0)+1);let n=[...e.values()];return n.length>1&&n.slice(0,-1).every(o=>o===n[0])?n[0]:0}function Qa(t,e){return t<=
e*12?e:e*Math.max(1,Math.round(Math.sqrt(t*2.5)/e))}function tl(t,e){if(e==="even")return"";let n=[];for(let l=0;l<t.rows;l+=
1)for(let i=0;i<t.columns;i+=1){let c=t.at(l,i);c?.slowdown&&n.push(c)}let o=n.reduce((l,{slowdown:i})=>Math.max(l,i),1),
s=qa[e.startsWith("hot_")?"named":"otherwise"],r=1+Math.max(s,(o-1)/2);return n.filter(({slowdown:l})=>l>=r).sort((l,i)=>i.
slowdown-l.slowdown).slice(0,Ga).map(({stage:l,data:i})=>`${l},${i}`).join(";")}var Re="http://www.w3.org/2000/svg",Nt=4,el=[{name:"hot_cell",words:"one hot cell",meaning:"its hardware or its data",isHot:(t,e)=>t===
1&&e===2},{name:"hot_row",words:"a hot row",meaning:"an uneven pipeline stage",isHot:t=>t===Nt-1},{name:"hot_column",words:"\
a hot column",meaning:"one data rank is slow in all stages: its host or its data",isHot:(t,e)=>e===2},{name:"spread",words:"\
heat everywhere",meaning:"uneven sequences, or pauses on changing ranks",isHot:(t,e)=>(t*3+e*5)%4<2},{name:"silent",words:"\
hatched",meaning:"a worker is silent or stuck",isHot:()=>!1,isSilent:(t,e)=>t===1&&e===2},{name:"even",words:"even",meaning:"\
all workers are equally fast",isHot:()=>!1}];function $o(t){let e=new Map(el.map(s=>[s.name,nl(s)])),n=_("ul","pattern-l\
egend",{"aria-label":"Pattern legend"},...e.values());return t.append(n),{update:s=>{for(let[r,a]of e)r===s?a.setAttribute(
"aria-current","true"):a.removeAttribute("aria-current")},destroy:()=>n.remove()}}function nl({words:t,meaning:e,isHot:n,
isSilent:o}){let s=_("span","pattern-words",{},_("strong","",{},t),_("span","",{},e));return _("li","pattern-item",{},ol(
n,o),s)}function ol(t,e=()=>!1){let n=document.createElementNS(Re,"svg"),o=(s,r)=>Object.entries(r).forEach(([a,l])=>s.setAttribute(
a,l));o(n,{viewBox:"0 0 32 32",class:"pattern-picture","aria-hidden":"true"});for(let s=0;s<Nt*Nt;s+=1){let[r,a]=[Math.floor(
s/Nt),s%Nt],l=e(r,a)?"silent":t(r,a)?"hot":"even",i=document.createElementNS(Re,"rect");o(i,{x:a*8+.75,y:r*8+.75,width:6.5,
height:6.5,rx:1.2,class:`pattern-cell pattern-${l}`}),n.append(i),l==="silent"&&n.append(sl(a*8,r*8,o))}return n}function sl(t,e,n){
let o=document.createElementNS(Re,"path");return n(o,{d:`M${t+1.2} ${e+4}l2.8-2.8M${t+1.2} ${e+6.8}l5.6-5.6M${t+4} ${e+6.8}\
l2.8-2.8`,class:"pattern-strokes"}),o}var Ae={left:66,top:24,right:2,bottom:4},ve={most:380,row:38},rl="No rank has reported yet.";function Eo(t,e){let n={cells:null,
picture:null,rank:null},o=Tt(t,{part:"matrix",label:"Slowdown of each worker by pipeline stage and data rank",layout:Ae,
marks:["silent"],hasMinimap:!1,tableCaption:"The slowest workers",tableColumn:"worker",on:{words:c=>il(n.cells,c),pick:({
row:c,column:f})=>{let d=n.cells.at(c,f)?.rank;d!==void 0&&e.select({rank:d})},changed:({view:c,ratio:f,grid:d})=>ul(o.note,
L(c,f),d)}}),s=_("p","pattern-sentence",{"data-field":"pattern-text"}),r=_("div","pattern-aside",{},s);o.body.after(r);let a=$o(
r);return{update:(c,f)=>{n.picture!==c&&(n.cells=Mo(c));let d=n.picture!==c||n.rank!==f.rank;if(Object.assign(n,{picture:c,
rank:f.rank}),!d)return;let{heat:m}=c;s.textContent=A(m.pattern_text??""),a.update(m.pattern),t.dataset.pattern=m.pattern,
t.dataset.hot=n.cells.hot,t.dataset.silent=m.silent.map(p=>p.join(",")).join(";"),o.table.update(G(c).worst,p=>cl(n.cells,
p));let h=n.cells.rows?al(n.cells,f.rank):J;o.setHeight(Math.min(ve.most,Math.max(1,h.rows)*ve.row)+Ae.top+Ae.bottom),o.
stage.dataset.empty=h.rows?"":rl,o.heat.setGrid(h)},destroy:()=>{r.remove(),o.destroy()}}}function al(t,e){let{rows:n,columns:o,
levels:s}=t;return{...J,rows:n,columns:o,levels:s,rowKeys:Array.from({length:n},(r,a)=>t.rowName(a)),columnKeys:Array.from(
{length:o},(r,a)=>t.columnName(a)),rowName:t.rowName,columnName:t.columnName,columnLabelRoom:30,corner:t.corner,exactAt:(r,a)=>t.
at(r,a)?.slowdown??null,hatched:t.silent,cells:t.count,markedCell:t.placeOfRank.get(e)??null,startCell:t.placeOfRank.get(
e)??ll(t),mostCellWidth:64,mostCellHeight:ve.row}}function ll({rows:t,columns:e,silent:n,at:o}){if(n.size)return Math.min(
...n);let[s,r]=[0,-1/0];for(let a=0;a<t*e;a+=1){let l=o(Math.floor(a/e),a%e)?.slowdown??-1/0;l>r&&([s,r]=[a,l])}return s}
function il(t,{row:e,column:n,ranks:o}){let s=t.at(e,n);if(!s)return["no worker","",""];let r=s.rank===void 0?"":nt(s.rank,
t.known.get(s.rank)?.node),a=t.isRanks?r:`stage ${s.stage}, data rank ${s.data}`,l=t.silent.has(e*t.columns+n);return[`${a}\
: ${l?"silent":ut(s.slowdown)}`,!t.isRanks&&r?s.ranks.length>1?`slowest of its ${s.ranks.length} ranks: ${r}`:r:"",l&&t.
known.get(s.rank)?.state?`state: ${t.known.get(s.rank).state}`:"",o>1?"the hottest of the cells under one pixel":""]}function cl(t,e){
let n=t.placeOfRank.get(e),o=n===void 0?null:t.at(Math.floor(n/t.columns),n%t.columns);return!o||t.isRanks?"not reported":
`stage ${o.stage}, data rank ${o.data}`}function ul(t,{rows:e,columns:n},o){let s=e*n,r=s>1&&o.rows?`Each mark shows the\
 hottest of ${s} workers.`:"";t.textContent!==r&&(t.textContent=r)}var Ne=["run","group","section","rank"];function Ro(t){let e=new URLSearchParams(t.replace(/^#/,"")),n={};for(let o of Ne)
n[o]=e.has(o)?e.get(o):null;return n.rank=/^\d{1,9}$/.test(n.rank??"")?Number(n.rank):null,n}function Ct(t){let e=new URLSearchParams;
for(let o of Ne)t[o]!==null&&t[o]!==void 0&&e.set(o,t[o]);let n=e.toString();return n?`#${n}`:""}function fl(t,e){let n={
...t};"run"in e&&e.run!==t.run&&Object.assign(n,{group:null,section:null,rank:null}),"group"in e&&e.group!==t.group&&Object.
assign(n,{section:null,rank:null});for(let o of Ne)o in e&&(n[o]=e[o]??null);return n.section===""&&(n.section=null),n}function Ao(t,e){
let n=Ro(t.location.hash),o=()=>{n=Ro(t.location.hash),e(n)};return t.addEventListener("popstate",o),t.addEventListener(
"hashchange",o),{chosen:()=>n,select(s){let r=fl(n,s);if(Ct(r)===Ct(n))return;let a=r.run!==n.run;n=r;let l=Ct(n)||t.location.
pathname+t.location.search;a?t.history.pushState(null,"",l):t.history.replaceState(null,"",l),e(n)}}}var vo=100;function Co(t,e){let n="",o=!1,s=0,r={runs:null,picture:null},a=()=>$(t,m()),l=()=>dl(r.runs?.runs??[],n);function i(w){
if(o===w)return;o=w,n="";let T=l().map(y=>y.run_id);s=Math.max(0,T.indexOf(r.picture?.run.run_id)),a(),o&&t.querySelector(
"input").focus()}function c(){i(!1),t.querySelector(".run-button").focus()}function f(w){c(),e.select({run:w.run_id})}function d(w){
let T=l().slice(0,vo),y={ArrowDown:1,ArrowUp:-1,PageDown:10,PageUp:-10};if(w.key in y)s=Math.min(T.length-1,Math.max(0,s+
y[w.key])),a(),t.querySelector("[aria-selected=true]")?.scrollIntoView({block:"nearest"});else if(w.key==="Enter")T[s]&&
f(T[s]);else if(w.key==="Escape")c();else return;w.preventDefault(),w.stopPropagation()}function m(){let w=r.picture?.run??
null;return[u("button",{type:"button",class:"run-button","aria-haspopup":"listbox","aria-expanded":String(o),onclick:()=>i(
!o)},u("span",{class:"visually-hidden"},"Run: "),w?No(w):"Choose a run",ml(r.runs),u("span",{"aria-hidden":"true"},"\u25BE")),
o?h():null,kl(w,e),gl(r.runs?.runs.find(T=>T.run_id===w?.run_id))]}function h(){let w=l(),T=w.slice(0,vo);return u("div",
{class:"popup",onkeydown:d,key:"popup"},u("input",{type:"search",role:"combobox","aria-label":"Find a run by name, job o\
r state","aria-expanded":"true","aria-controls":"run-list","aria-activedescendant":T[s]?`run-${s}`:!1,placeholder:"Find \
a run",autocomplete:"off",spellcheck:"false",value:n,oninput:y=>{n=y.target.value,s=0,a()}}),u("ul",{role:"listbox",id:"\
run-list","aria-label":"Runs"},T.map((y,k)=>p(y,k,k===s,f))),u("p",{class:"popup-note",role:"status"},hl(w.length,T.length,
n)))}function p(w,T,y,k){let x=g(w.received_at_s)?r.runs.now_s-w.received_at_s:null;return u("li",{role:"option",id:`run\
-${T}`,key:w.run_id,"aria-selected":String(y),"data-tone":w.tone,onclick:()=>k(w)},u("span",{class:"tone-mark",title:Et(
w.tone),"aria-hidden":"true"},Rt(w.tone)),u("span",{class:"visually-hidden"},`${Et(w.tone)}: `),u("span",{class:"option-\
name"},No(w)),u("span",{class:"option-says",dir:"auto"},w.headline),u("span",{class:"option-size"},pl(w,x),wl(w)))}return document.
addEventListener("pointerdown",w=>{o&&!t.contains(w.target)&&i(!1)}),t.addEventListener("focusout",w=>{o&&w.relatedTarget&&
!t.contains(w.relatedTarget)&&i(!1)}),{update(w,T,y){r={runs:y,picture:w},t.hidden=!y||y.runs.length===0,a()}}}function dl(t,e){
let n=e.toLowerCase().split(/\s+/).filter(Boolean);return t.filter(o=>{let s=`${o.run_id} ${o.job??""} ${o.state??""} ${o.
tone} ${o.headline??""}`;return n.every(r=>s.toLowerCase().includes(r))})}function No(t){let e=t.job&&t.job!==t.run_id;return[
b(e?t.job:t.run_id,"run-job"),e?b(t.run_id,"run-id"):null]}function ml(t){let e=(t?.runs.length??0)-1;return e<=0?null:u(
"span",{class:"run-count"},`+${O(e)}`,u("span",{class:"visually-hidden"}," more"))}function hl(t,e,n){return t===0?"No m\
atching run":t>e?`${t-e} more: type to filter`:n?`${V(t,"run")} found`:""}function pl(t,e){let n=g(t.world_size)?V(t.world_size,
"rank"):"";return t.is_live?g(e)?`${n}, ${C(e)} ago`:n:`${n}, from history`}function Ho(t){return/^https?:\/\//.test(t?.
page_url??"")?`${t.page_url}/${Ct({run:t.run_id})}`:null}function gl(t){let e=Ho(t);return e===null?null:u("a",{class:"s\
hard-link",key:"shard",href:e,title:"Its alerts and decisions are there"},u("span",{class:"visually-hidden"},"Open the p\
age of its shard, "),`on ${t.collector??t.page_url}`)}function wl(t){let e=Ho(t);return e===null?null:[", ",u("a",{class:"\
shard-link",href:e,tabindex:"-1",onclick:n=>n.stopPropagation()},`on ${t.collector??t.page_url}`)]}function kl(t,e){let n=t?.
groups??[];return n.length<2?null:u("label",{class:"group-picker",key:"group"},u("span",{},"Group"),u("select",{value:t.
group,onchange:o=>e.select({group:o.target.value})},n.map(o=>u("option",{value:o,selected:o===t.group,key:o},o||"(defaul\
t)"))))}var oe=160,Wo=34;function Lo(t,e){let n=t.filter(g);if(n.length===0)return u("span",{class:"muted"},"no past");let o=Math.
min(.9,...n),s=Math.max(1.2,...n),r=i=>t.length<2?oe:i/(t.length-1)*oe,a=i=>2+(1-(i-o)/(s-o))*(Wo-4),l=n[n.length-1];return u(
"svg",{class:"spark",viewBox:`0 0 ${oe} ${Wo}`,preserveAspectRatio:"none",role:"img","aria-label":`${e}: from ${H(n[0])}\
 to ${H(l)}, at most ${H(Math.max(...n))}`},u("line",{class:"spark-one",x1:0,x2:oe,y1:a(1).toFixed(1),y2:a(1).toFixed(1)}),
u("path",{class:"spark-line",d:yl(t,r,a)}))}function yl(t,e,n){let o=[],s=!1;return t.forEach((r,a)=>{if(g(r)){let l=`${e(
a).toFixed(1)} ${n(r).toFixed(1)}`;o.push(s?`L${l}`:`M${l}h0.01`)}s=g(r)}),o.join("")}var Io=5,bl={confirmed:"bad",flapping:"bad",suspect:"watch",recovered:"good",ok:"good"};function Po(t,e){return Pt(t,(n,o,s)=>_l(
n,o,s,e))}function _l(t,e,n,o){let s=t.verdicts||[],r=e?s:s.slice(0,Io),a=t.verdicts_left_out||0;return[s.length?u("ul",
{class:"cards"},r.map(l=>Ce(l,t,o))):B("No rank, host or stage has had a slow verdict."),pt(s.length,Io,e,n),a?u("p",{class:"\
nothing",key:"left"},`${O(a)} more lose less`):null,Sl(t),Ml(t)]}function Ce(t,e,n){let o=t.stands?bl[t.state]||"unknown":
"good";return u("li",{key:t.subject_id,"data-tone":o,"data-state":t.state},u("span",{class:"badge"},t.state),u("div",{},
u("p",{class:"card-title"},xl(t,n),t.silenced?u("span",{class:"label"},"silenced"):null,t.pages?u("span",{class:"label s\
trong"},e.run.mode==="observe"?"would page":"pages"):null),u("p",{dir:"auto"},tt(I(t.sentence))),u("p",{class:"card-foot"},
Tl(t,e).map(s=>u("span",{},b(s))))))}function xl(t,e){return t.scope==="rank"&&g(t.rank)?[X(t.rank,e),t.node?[" on ",b(t.
node)]:null]:t.scope==="host"?["host ",b(t.node)]:t.scope==="role"?["role ",b(t.role)]:"the whole run"}function Tl(t,e){
let n=[t.cause_text||P(t.cause)];t.section&&n.push(`in ${t.section}`),g(t.slowdown)&&n.push(H(t.slowdown)),g(t.since_step)&&
n.push(`since step ${O(t.since_step)}`),g(t.since_s)&&n.push(W(t.since_s,e.now_s));let o=t.stands?t.gpu_seconds_lost_per_hour:
null;return g(o)&&o>=1&&n.push(`${Y(o,e.run.on_gpu)} per hour`),g(t.n_peers)&&t.n_peers>0&&n.push(V(t.n_peers,"peer")),g(
t.confidence)&&t.stands&&n.push(`${F(t.confidence)} sure`),n}function Sl(t){let e=[...t.decisions||[]].reverse().slice(0,
20);return e.length?u("div",{class:"decisions",key:"decisions"},u("h3",{},"Decisions"),u("ul",{class:"lines"},e.map(n=>Ol(
n,t.now_s)))):null}function Ol(t,e){let n=t.until_ns?` until ${W(t.until_ns/1e9,e)}`:"",o=t.by?[" by ",b(t.by)]:null;return u(
"li",{class:t.is_in_force?"":"muted"},u("strong",{},t.action)," ",b(t.subject_id),`${n}: `,b(t.reason),o,`, ${W(t.at_ns/
1e9,e)}`,t.is_in_force?null:" (no longer in force)")}function Ml(t){let e=t.maintenance||[];return e.length?u("div",{class:"\
decisions",key:"maintenance"},u("h3",{},"Under maintenance: lost ranks there do not page"),u("ul",{class:"lines"},e.map(
n=>u("li",{key:n.node},u("strong",{},b(n.node)),` until ${W(n.until_s,t.now_s)}: `,b(n.reason),n.by?[" by ",b(n.by)]:null)))):
null}var $l=1.1,El=["auto","off"];function Fo(t,e){let n=null,o=null;function s(){e.select({rank:null})}function r(a){if(a===
o)return;o=a;let{activeElement:l}=document,i=t.contains(l);t.hidden=a===null,document.body.classList.toggle("has-side-pa\
nel",a!==null),a!==null?(i||(n=l),t.querySelector("h2").focus({preventScroll:!0}),t.scrollTop=0):n?.isConnected&&(i||l===
document.body)&&n.focus({preventScroll:!0})}return document.addEventListener("keydown",a=>{a.key==="Escape"&&o!==null&&!a.
defaultPrevented&&s()}),document.addEventListener("focusin",()=>{window.requestAnimationFrame(()=>{o!==null&&Rl(document.
activeElement,t)&&s()})}),{update(a,l,i,c){let f=a?l.rank:null;f!==null&&$(t,Al(a,l,i,{...e,close:s,isSaved:c})),r(f)}}}
function Rl(t,e){if(!t||t===document.body||e.contains(t))return!1;let[n,o]=[t,e].map(s=>s.getBoundingClientRect());return n.
left>=o.left-1&&n.bottom>o.top}function Al(t,e,n,o){let s=n!==null&&n.rank===e.rank;return[u("header",{class:"panel-head",
key:"head"},u("h2",{tabindex:"-1"},`Rank ${O(e.rank)}`),u("button",{type:"button",class:"icon-button","aria-label":"Clos\
e",onclick:o.close},"\u2715")),s?Nl(t,n,o):B(vl(t,e.rank,o.isSaved))]}function vl(t,e,n){return t.ranks.rank.includes(e)?
n?"This report has no details of this rank; the collector's page does.":"No further data yet.":"Unknown rank."}function Nl(t,e,n){
return[Cl(e),Ll(e,n),Dl(e),Bl(t,e,n),jl(e),e.commands?.length?u("section",{key:"commands"},u("h3",{},"To run"),e.commands.
map(o=>ct(o,e.page_url))):null]}function Cl(t){let{mark:e,tone:n}=ft(t.state),o=Object.entries(t.parallel||{}).map(([r,a])=>`${r}\
 ${a}`),s=[["State",u("span",{"data-rank-state":n},u("span",{class:"state-mark","aria-hidden":"true"},e),` ${t.state??"u\
nknown"}`)],["Host",t.node?b(t.node):null],["Role",t.role?b(t.role):null],["Place",o.length?o.join(", "):null],["Step",g(
t.step)?O(t.step):null],["Heartbeat",g(t.heartbeat_age_s)?`${C(t.heartbeat_age_s)} ago`:null],["Progress",g(t.progress_age_s)?
`${C(t.progress_age_s)} ago`:null],["Open section",t.open_section?b(t.open_section):null],["GPU",Hl(t.gpu)]].filter(([,r])=>r);
return u("dl",{class:"pairs",key:"where"},s.map(([r,a])=>u("div",{key:r},u("dt",{},r),u("dd",{},a))))}function Hl(t){return!t||
!(t.model||t.uuid||t.tier)?null:(t.model||t.uuid||Do(t)?[t.model,t.uuid,Wl(t)]:["none reported"]).filter(Boolean).map(o=>u(
"div",{key:o},b(o)))}function Do({tier:t}){return!!t&&t!=="off"}function Wl(t){if(!t.tier)return null;let e=t.reason&&!El.
includes(t.reason)?`: ${P(t.reason)}`:"";return Do(t)?`timed by ${P(t.tier)}${e}`:`not timed${e}`}function Ll(t,e){let n=t.
sections||[];if(!n.length)return u("section",{key:"sections"},B("No scored window includes this rank yet."));let o=Math.
max(...n.flatMap(s=>[s.step_s??0,s.peers_step_s??0]));return u("section",{key:"sections"},u("h3",{},"Its sections next t\
o its peers"),u("ul",{class:"section-rows"},n.map(s=>Il(s,o,t.history,e))),u("p",{class:"nothing"},"Upper bar: this rank\
, time per step. Lower bar: median of its role. Line: slowdown over the last windows."))}function Il(t,e,n,o){let s=t.kind!==
"wait",r=t.n_peers===0,a=s&&g(t.slowdown)&&t.slowdown>=$l;return u("li",{key:t.name,"data-tone":a?"bad":!1},u("div",{class:"\
section-head"},u("button",{type:"button",class:"text-link",title:"Show this section over time",onclick:()=>o.select({section:t.
name})},b(t.name)),u("small",{},` ${t.kind??""}`),r?u("small",{},st):u("strong",{class:"number"},H(t.slowdown))),u("div",
{class:"section-body"},u("div",{class:"section-bars"},D(t.step_s,e,a?"own":"neutral"),u("span",{class:"number"},N(t.step_s)),
r?null:D(t.peers_step_s,e,"others"),r?null:u("span",{class:"number"},N(t.peers_step_s))),r?null:Lo(Pl(n,t.name),`Slowdow\
n of ${t.name}`)),u("p",{class:"card-foot"},Fl(t,r).map(l=>u("span",{},l))))}function Pl(t,e){let n=t?.sections?.indexOf(
e)??-1;return n===-1?[]:t.slowdowns[n]}function Fl(t,e){let o=[["score",e?null:t.relative_score],["to its own best",t.individual_score],
["GPU",t.gpu_relative],["GPU to its own best",t.gpu_individual]].filter(([,s])=>g(s)).map(([s,r])=>`${s} ${r.toFixed(2)}`);
return g(t.median_s)&&o.push(`median run ${N(t.median_s)}`),o}function Dl(t){if(!t.waits)return null;let{caused_s:e,suffered_s:n}=t.
waits,o=Math.max(e??0,n??0);return u("section",{key:"waits"},u("h3",{},"Waiting"),u("div",{class:"section-bars with-name\
s"},u("span",{},"made others wait"),D(e,o,"culprit"),u("span",{class:"number"},N(e)),u("span",{},"waited for others"),D(
n,o,"victim"),u("span",{class:"number"},N(n))))}function Bl(t,e,n){let o=e.verdicts||[];return u("section",{key:"verdict\
s"},u("h3",{},"Verdicts"),o.length?u("ul",{class:"cards"},o.map((s,r)=>Kl(s,r,t,n))):B("No slow verdict."))}function Kl(t,e,n,o){
let s=Ce({stands:t.state!=="recovered"&&t.state!=="ok",...t},n,o);return{...s,props:{...s.props,key:e}}}function jl(t){let e=Object.
entries(t.dropped||{}).filter(([,o])=>o>0);if(!e.length)return null;let n=e.map(([o,s])=>`${o}: ${O(s)}`);return u("sect\
ion",{key:"dropped"},u("h3",{},"Lost before it arrived"),u("p",{},b(n.join(", "))))}var Ul=et(1.1);function Bo(t,e){let n=t?.ranks.indexOf(e)??-1;if(n<0)return"unknown";let{columns:o,bytes:s,ranks:r}=t,a=o.
length;for(;a>0&&s[(a-1)*r.length+n]>=Ul;)a-=1;if(a===o.length)return"not slow now";let l=Gt(o[a]),i=o[a].first_step===null?
l:`step ${l}`;return a===0?`${i} or before`:i}var Ht={left:82,top:4,right:0,bottom:24},He={least:96,most:420,row:30},Gl="No window has been scored yet: the first one \
closes after some steps.",zl="No rank is flagged.";function Ko(t,e){let n={order:"rank",shown:null,cache:Ql(),last:null,
draws:0},o=Tt(t,{part:"rank-time",label:"Slowdown of each rank in each window of steps",layout:Ht,marks:["flagged"],hasMinimap:!0,
tableCaption:"The slowest ranks of the newest window",tableColumn:"slow since",on:{words:f=>ti(n.shown,f),pick:f=>e.select(
{rank:n.shown.rankAt(f.row)}),changed:f=>ni(t,o,l,n,f)}}),s=()=>n.last&&Vl(o,n,...n.last),r=vt("section",f=>e.select({section:f})),
a=vt("order of ranks",f=>{n.order=f,s()});a.setOptions(te,n.order);let l=kt("newest \u25B8","go to the newest window",()=>oi(
o.heat));return o.tools.append(r.element,a.element,...Qt(o.heat.actions,"ranks","time"),l),{update:(f,d,m)=>{n.last=[f,d,
m],r.setOptions(Yl(f),d.section??""),o.table.update(G(f).worst,h=>Bo(m,h)),s()},counts:()=>({draws:o.heat.it.draws,columnsBuilt:n.
cache.built()}),destroy:o.destroy}}function Yl(t){let e=(t.sections??[]).map(({name:n})=>({name:n,words:A(n)}));return[{
name:"",words:"all sections"},...e]}function Vl(t,e,n,o,s){let r=o.rank??null,{known:a,flagged:l}=G(n),i=s?ee(e.order,s,
a,l,r):[],c=i.map(w=>s.ranks[w]),f=$e(t.heat.it),d=e.shown,m=d!==null&&d.order!==e.order;f&&!m&&e.order==="worst"&&Xl(d?.
keys,c)&&(i.splice(0,i.length,...d.keys.map(w=>s.ranks.indexOf(w))),c.splice(0,c.length,...d.keys)),e.shown={order:e.order,
keys:c,known:a,flagged:l,timeline:s,rankAt:w=>c[w],columns:s?.columns??[]};let h=s&&c.length?Zl(e,i,r):J,p=Math.min(He.most,
Math.max(He.least,h.rows*He.row));t.setHeight(p+Ht.top+Ht.bottom),t.body.dataset.large=String(h.rows>100||h.columns>240),
t.stage.dataset.empty=h.rows===0?s?.columns.length?zl:Gl:"",t.heat.setGrid(h,m)}function Xl(t,e){if(!t||t.length!==e.length)
return!1;let n=new Set(t);return e.every(o=>n.has(o))}function Zl(t,e,n){let{keys:o,timeline:s,flagged:r,known:a}=t.shown,
l=t.cache.levelsOf(s,e,`${t.order}|${o.length}`,o),i=o.indexOf(n),c=s.columns.some(({first_step:h})=>h!==null),f=t.order===
"node",d=h=>a.get(o[h])?.node??"",m=f?o.map((h,p)=>p).filter(h=>h&&d(h)!==d(h-1)):[];return{...J,rows:o.length,columns:s.
columns.length,levels:l,rowKeys:o,columnKeys:s.columns.map(({seq:h,at_s:p})=>`${h}@${p}`),rowName:h=>f&&d(h)?`${d(h)} \xB7 ${o[h]}`:
`rank ${o[h]}`,columnName:h=>Gt(s.columns[h]),columnLabelRoom:76,corner:c?"step":"time",...ne(o,r),selectedRow:i<0?null:
i,rowBreaks:m,columnBreaks:Jl(s.columns),hasSlots:!0,isRanking:t.order==="worst",layoutFor:()=>({...Ht,left:f?120:Ht.left}),
mostCellHeight:30,mostCellWidth:60}}function Jl(t){let e=[];for(let n=1;n<t.length;n+=1)t[n].seq!==t[n-1].seq+1&&e.push(
n);return e}function Ql(){let[t,e,n,o]=[new Map,"",[],0],s=(a,l,i,c)=>{let{run_id:f,group:d,section:m,ranks:h}=a,p=[f,d,
m,h.length,i].join("|"),w=n.length===c.length&&c.every((y,k)=>y===n[k]);(p!==e||!w)&&(t=new Map),[e,n]=[p,c];let T=new Map;
return a.columns.forEach(({seq:y,at_s:k},x)=>{let M=`${y}@${k}`;T.set(M,t.get(M)??r(a,l,x))}),t=T,[...T.values()]},r=(a,l,i)=>{
o+=1;let c=i*a.ranks.length;return yt(Yt(a.bytes,l,c))};return{levelsOf:s,built:()=>o}}function ti(t,{row:e,column:n,byte:o,
ranks:s}){let r=t.rankAt(e),{node:a,state:l}=t.known.get(r)??{},i=t.columns[n],c=t.flagged.get(r)?.why,f=s===1&&ei(t,n,r);
return[`${nt(r,a)}, ${Ln(i)}: ${f?st:Hn(o)}`,s>1?`the slowest of ${ot(s)} in this line`:"",i.first_step===null?"":zt(i.at_s),
c?`flagged: ${c}`:l??""]}function ei({timeline:t,known:e},n,o){let{ranks:s,bytes:r}=t,a=n*s.length,l=s.map(i=>e.get(i)?.
role);return wt({role:l},r.subarray(a,a+s.length))(s.indexOf(o))}function ni(t,e,n,o,s){let{bounds:r,view:a,grid:l}=s,i=_t(
a,r),{keys:c}=o.shown??{keys:[]},f={firstRank:c[i.firstRow]??"",lastRank:c[i.endRow-1]??"",columns:l.columns,order:o.order};
for(let[y,k]of Object.entries(f))t.dataset[y]!==String(k)&&(t.dataset[y]=k);let d=L(a,s.ratio),m=d.rows>1?` Each line sh\
ows the slowest of ${ot(d.rows)}.`:"",h=`${gt(i.endRow-i.firstRow)} of ${ot(c.length)}`,p=`${i.endColumn-i.firstColumn} \
of ${l.columns} window${l.columns===1?"":"s"}`,w=c.length?`${h}, ${p}.${m}`:"";e.note.textContent!==w&&(e.note.textContent=
w);let T=Jt(a,r)||!xt(a,r).across&&a.x>=0&&i.endColumn===l.columns;n.disabled!==T&&(n.disabled=T)}function oi({it:t,show:e}){
e(K({...t.view,x:360*10},t.bounds))}var St={left:82,right:2,bottom:4,top:38,isSlanted:!1},si={...St,top:68,right:44,isSlanted:!0},ri=6.8,We={least:60,most:400,
row:26},ai="No window has been scored yet: the first one closes after some steps.",li="all";function jo(t,e){let n={order:"\
rank",shown:null,last:null},o=Tt(t,{part:"sections",label:"Slowdown of each rank in each section of the newest window",layout:St,
marks:["flagged"],hasMinimap:!0,tableCaption:"The slowest ranks of the newest window, all sections together",tableColumn:"\
slowest in",on:{words:l=>pi(n.shown,l),pick:({row:l,column:i})=>{let c=i===0?"":n.shown.columns[i].name;e.select({rank:n.
shown.keys[l],section:c})},changed:l=>gi(t,o,n,l)}}),s=()=>n.last&&ci(o,n,...n.last),r=vt("order of ranks",l=>{n.order=l,
s()});return r.setOptions(te,n.order),o.tools.append(r.element,...Qt(o.heat.actions,"ranks")),{update:(l,i)=>{n.last=[l,
i],s(),o.table.update(G(l).worst,c=>mi(n.shown,c))},destroy:o.destroy}}function ii(t){let e=t.ranks.rank.length,{overall:n,
by_section:o}=t.slowdowns??{},s=(a,l,i)=>({name:a,words:A(a),kind:A(l),values:i,bytes:Sn(i,e),isAlone:wt(t.ranks,i)}),r=(t.
sections??[]).map(({name:a,kind:l},i)=>s(a,l,o?.[i]??[]));return[s(li,"all compute and data sections",n??[]),...r]}function ci(t,e,n,o){
let s=e.shown,r=s?.picture===n&&s.order===e.order&&e.order!=="flagged";e.shown=r?s:ui(n,e.order,o);let{keys:a,hasData:l}=e.
shown,i=l&&a.length?fi(e.shown,o):J,c=Math.min(We.most,Math.max(We.least,i.rows*We.row)),{top:f,bottom:d}=i.layoutFor?.(
t.stage.clientWidth/Z())??St;t.setHeight(c+f+d),t.body.dataset.large=String(i.rows>100),t.stage.dataset.empty=i.rows===0?
l?"No rank is flagged.":ai:"",t.heat.setGrid(i,s!==null&&s.order!==e.order)}function ui(t,e,n){let o=ii(t),{known:s,flagged:r}=G(
t),a={ranks:t.ranks.rank,columns:[{}],bytes:o[0].bytes},l=ee(e,a,s,r,n.rank??null);return{picture:t,order:e,places:l,columns:o,
known:s,flagged:r,hasData:o.some(({bytes:i})=>i.some(Boolean)),keys:l.map(i=>a.ranks[i]),levels:o.map(({bytes:i})=>yt(Yt(
i,l)))}}function fi({keys:t,places:e,columns:n,levels:o,flagged:s,known:r,order:a},l){let i=t.indexOf(l.rank??null),c=l.
section?n.findIndex(({name:d},m)=>m>0&&d===l.section):0,f=d=>r.get(t[d])?.node??"";return{...J,rows:t.length,columns:n.length,
levels:o,rowKeys:t,columnKeys:n.map(({name:d},m)=>`${m}:${d}`),rowName:d=>a==="node"&&f(d)?`${f(d)} \xB7 ${t[d]}`:`rank ${t[d]}`,
columnName:d=>n[d].words,columnKind:d=>d===0?"own work":n[d].kind,exactAt:(d,m)=>di(n[m],e[d]),...ne(t,s),selectedRow:i<
0?null:i,selectedColumn:c<0?null:c,columnBreaks:[1],hasNamesOnTop:!0,layoutFor:d=>hi(n,d,a==="node"),mostCellWidth:240,mostCellHeight:26}}
function di({values:t,isAlone:e},n){return e(n)?null:t[n]}function mi({picture:t,columns:e},n){let o=t.ranks.rank.indexOf(
n),s=e.slice(1).filter(({kind:r,isAlone:a})=>r!=="wait"&&!a(o)).map(({words:r,values:a})=>({words:r,slowdown:a[o]??null})).
filter(({slowdown:r})=>r!==null).sort((r,a)=>a.slowdown-r.slowdown);return s.length?`${s[0].words}, ${ut(s[0].slowdown)}`:
"unknown"}function hi(t,e,n){let o=n?120:St.left,s=Math.max(8,...t.map(({words:a})=>a.length))*ri+4;return{...(e-o-St.right)/
t.length>=s?St:si,left:o}}function pi({keys:t,places:e,columns:n,known:o,flagged:s},{row:r,column:a,ranks:l}){let i=t[r],
{words:c,kind:f,values:d,isAlone:m}=n[a],p=l===1&&m(e[r])?st:ut(d[e[r]]),w=a===0?"all sections":c;return[`${nt(i,o.get(i)?.
node)}, ${w}: ${p}`,a===0?"":`${f} section`,l>1?`the slowest of ${ot(l)} in this line`:"",s.has(i)?`flagged: ${s.get(i).
why}`:""]}function gi(t,e,n,{view:o,bounds:s,ratio:r,grid:a}){let l=_t(o,s),i=a.rows?n.shown.keys:[],c={firstRank:i[l.firstRow]??
"",lastRank:i[l.endRow-1]??"",columns:a.columns};for(let[h,p]of Object.entries(c))t.dataset[h]!==String(p)&&(t.dataset[h]=
p);let{rows:f}=L(o,r),d=f>1?` Each line shows the slowest of ${ot(f)}.`:"",m=i.length?`${gt(l.endRow-l.firstRow)} of ${ot(
i.length)}.${d}`:"";e.note.textContent!==m&&(e.note.textContent=m)}function Ie(t,e){let n=new URLSearchParams;for(let[s,r]of Object.entries(e))r!=null&&n.set(s,r);let o=n.toString();return o?
`${t}?${o}`:t}function Uo(t){let e=new Map;return{forget:()=>e.clear(),async get(n,o,s=!0){let r=Ie(n,o),a=e.get(r),l=await wi(
t,r,a?.etag);if(l.status===304&&a)return{body:a.body,isNew:!1,problem:null};if(l.status===401)throw Object.assign(new Error(
"no token"),{needsLogin:!0});if(l.status>=400&&l.status<500)return{body:null,isNew:!0,problem:await Le(l)};if(!l.ok)throw await ki(
l);let i=await l.json(),c=l.headers.get("ETag");return e.delete(r),c&&s&&e.set(r,{etag:c,body:i}),e.size>24&&e.delete(e.
keys().next().value),{body:i,isNew:!0,problem:null}},async login(n){try{let o=await t.fetch("v1/login",{method:"POST",headers:{
"Content-Type":"application/json"},body:JSON.stringify({token:n}),cache:"no-store",credentials:"same-origin"});return o.
ok?null:await Le(o)}catch{return"The collector does not respond."}}}}async function wi(t,e,n){let o=new AbortController,
s=t.later(()=>o.abort(),2e4);try{return await t.fetch(e,{headers:n?{"If-None-Match":n}:{},cache:"no-store",credentials:"\
same-origin",signal:o.signal})}finally{t.clear(s)}}async function ki(t){let e=await Le(t);return Object.assign(new Error(
e),{told:e})}async function Le(t){try{return String((await t.json()).error)}catch{return`The collector refuses this with\
 status ${t.status}.`}}function qo(){return{fetch:(t,e)=>window.fetch(t,e),openStream:t=>new EventSource(t),queueForStream:t=>yi(navigator.locks,
t),now_ms:()=>Date.now(),later:(t,e)=>window.setTimeout(t,e),clear:t=>window.clearTimeout(t),random:()=>Math.random(),isHidden:()=>document.
hidden,onVisible:t=>document.addEventListener("visibilitychange",t)}}function yi(t,e){let n=new AbortController,o=!1,s=()=>{},
r=new Promise(l=>{s=l}),a=()=>{if(!(o||n.signal.aborted))return o=!0,e(),r};for(let l=1;t&&l<=3;l+=1)t.request(`otel-str\
aggler stream ${l}`,{signal:n.signal},a).catch(()=>{});return()=>{n.abort(),s()}}function Go(t,e,n){let o=t.openStream(e),s=!0,r=()=>{s=!1,o.close()},a=l=>{o.addEventListener(l,i=>{let c=bi(i.data);s&&
c!==null&&n[l](c)})};return o.addEventListener("open",()=>s&&n.opened()),a("snapshot"),a("runs"),o.addEventListener("err\
or",()=>{s&&(r(),n.lost())}),{close:r}}function bi(t){try{return JSON.parse(t)}catch{return null}}var _i=3e3,xi=6e4;function zo(t,e){let n=null,o=null,s=!1,r=!1,a=null,l=null,i=null;function c(){t.clear(i),o=Go(t,n,{opened:()=>s=
!0,runs:e.runs,snapshot:e.snapshot,lost:f})}function f(){if(o=null,s)return e.lost();i=t.later(c,xi)}function d(){l=t.later(
()=>{s||(e.ask(),d())},_i)}function m(){r=!0,n!==null&&c()}function h(){o?.close(),o=n=null,s=!1,t.clear(l),t.clear(i)}return{
stop:h,listen(p){h(),n=p,r?c():a??=t.queueForStream(m),d()},rest(){h(),a?.(),a=null,r=!1}}}function Vo(t){return{runs:null,picture:null,timeline:null,rank:null,problem:null,connection:{state:t,since_ms:Date.now(),
retry_ms:null,told:null,clock_s:0}}}function Xo(){let t=document.getElementById("straggler-data");return t?Ti(JSON.parse(
t.textContent)):$i()}function Ti(t){let e=Vo("saved");return e.runs=t.runs,e.picture=t.run&&{...t.run,run:{...t.run.run,
groups:[t.run.run.group]}},{start(n,o){this.look=s=>{let r=(t.timelines||{})[s.section??""];e.timeline=r?ce(r):null,e.rank=
(t.ranks||{})[String(s.rank)]||null,n({...e})},this.look(o)},look(){},retry(){},stop(){}}}var Si=15e3,Oi=500,Yo=15e3,Mi=6;
function $i(t=qo()){let e=Uo(t),n=Vo("connecting"),o=new Map,s={},r=()=>{},a=null,l=new Map,i=0,c=null,f=null,d=-1/0,m=!1,
h=!1,p=0,w=null,T=zo(t,{runs:j,snapshot:S=>{if(v(S.now_s),a===null)return j();if(S.snapshot===n.picture?.snapshot)return y();
Fe()},ask:()=>a===null?j():Fe(),lost:x}),y=()=>r({...n,connection:{...n.connection}});function k(S){n.connection.state!==
S&&Object.assign(n.connection,{state:S,since_ms:t.now_ms()})}function x(S){if(T.stop(),S?.needsLogin)return M();i+=1;let R=Math.
min(Si,Oi*2**Math.min(i,8))*(.5+.5*t.random());k("reconnecting"),n.connection.told=S?.told??null,n.connection.retry_ms=t.
now_ms()+R,t.clear(c),c=t.later(at,R),y()}function M(){t.clear(c),Object.assign(n.connection,{retry_ms:null,told:null}),
k("locked"),y()}function v(S){i=0,Object.assign(n.connection,{retry_ms:null,told:null}),typeof S=="number"&&(n.connection.
clock_s=S-t.now_ms()/1e3),k(Ei(n.picture)?"ended":"live")}function rt(){e.forget(),o.clear(),n.rank=null}function dt({collector:S,
started_at_s:E}){let R=l.get(S);return l.set(S,E),R!==void 0&&R!==E}async function at(){t.clear(c);let S=i;try{await Ot(),
mt(),await ht()}catch(E){i=S,x(E)}}async function Ot(){let S=await e.get("v1/runs",{});if(S.body===null)return v(null);dt(
S.body)&&rt(),n.runs=S.body,v(S.body.now_s)}function j(){Lt(Ot().then(()=>Wt()===a?y():Pe()))}function mt(){a=Wt(),t.isHidden()||
T.listen(Ie("v1/events",{run:a}))}function Wt(){return s.run??n.runs?.runs[0]?.run_id??null}function Pe(){return mt(),ht()}
function Lt(S){S.catch(x)}function Fe(){if(f!==null||t.isHidden())return;let S=1e3*(n.picture?.next_look_s??1),E=Math.max(
0,d+S-t.now_ms());f=t.later(()=>{f=null,Lt(ht())},E)}async function ht(){if(m){h=!0;return}m=!0;try{do h=!1,await es();while(h)}finally{
m=!1}}async function es(){let S=p;d=t.now_ms();let E=Wt();if(E===null)return n.picture=null,y();let R=await e.get("v1/ru\
n",{run:E,group:s.group});if(S!==p)return h=!0;if(n.problem=R.problem,R.problem)return Object.assign(n,{picture:null,timeline:null,
rank:null}),y();dt(R.body)&&(rt(),await Ot()),n.picture=R.body,v(R.isNew?R.body.now_s:null);let z={run:R.body.run.run_id,
group:R.body.run.group},{collector:Q}=R.body,[lt,Mt]=await Promise.all([ns(z,Q),os(z)]);return S!==p?h=!0:(Object.assign(
n,{timeline:lt,rank:Mt}),y())}async function ns(S,E){let R={...S,section:s.section??""},z=JSON.stringify([E,R]),Q=o.get(
z)??null,lt=n.picture.timeline?.last;if(lt==null)return null;let Mt=Q?.last_seq??null;if(Mt!==null&&Mt>=lt)return Q.timeline;
let It=await e.get("v1/timeline",{...R,after:Mt},!1);if(It.problem||!It.body)return Q?.timeline??null;let Ke=ce(It.body),
je=Q?On(Q.timeline,Ke):Ke;return o.delete(z),o.set(z,{timeline:je,last_seq:It.body.last??lt}),o.size>Mi&&o.delete(o.keys().
next().value),je}async function os(S){return s.rank===null||s.rank===void 0?null:(await e.get("v1/rank",{...S,rank:s.rank})).
body}function De(){return["reconnecting","locked"].includes(n.connection.state)}function Be(){t.later(Be,Yo),!De()&&(t.isHidden()?
ss():j())}function ss(){let S=()=>{let E=n.runs?.runs.find(({run_id:z})=>z===Wt()),R=w;return w=`${E?.tone} ${E?.headline}`,
w!==R};Lt(Ot().then(()=>S()&&ht()))}function rs(){if(w=null,t.isHidden())return T.rest();if(De())return at();mt(),Lt(ht())}
return{start(S,E){return r=S,s=E,t.onVisible(rs),t.later(Be,Yo),at()},look(S){let E=s;s=S,p+=1;let{state:R,told:z}=n.connection;
return R==="locked"?void 0:R==="reconnecting"?z?at():void 0:((E.run??null)===(S.run??null)?ht():Pe()).catch(x)},retry:()=>at(),
async login(S){let E=await e.login(S);return E===null&&await at(),E},stop(){T.rest(),t.clear(c),t.clear(f)}}}function Ei(t){
return t!==null&&(t.run.finished_at_s!==null||!t.run.is_live)}var Zo="otel-straggler-theme";function Jo(t,e){let n=document.documentElement,o=window.matchMedia("(prefers-color-scheme\
: dark)"),s=Ri(),r=()=>{let a=s||(o.matches?"dark":"light"),l=a==="dark"?"light":"dark";n.dataset.theme=a,t.textContent=
a==="dark"?"\u2600":"\u263E",t.setAttribute("aria-label",`Change to ${l} colours`),t.title=`Change to ${l} colours`,e(a)};
t.addEventListener("click",()=>{s=n.dataset.theme==="dark"?"light":"dark",Ai(s),r()}),o.addEventListener("change",r),r()}
function Ri(){try{let t=window.localStorage.getItem(Zo);return t==="dark"||t==="light"?t:null}catch{return null}}function Ai(t){
try{window.localStorage.setItem(Zo,t)}catch{}}var Qo=8;function ts(t,e){return Pt(t,(n,o,s)=>vi(!ie(n)&&n.waits||[],o,s,e))}function vi(t,e,n,o){if(!t.length)return B(
"No rank has waited for another yet.");let s=e?t:t.slice(0,Qo),r=Math.max(...t.flatMap(a=>[a.caused_s??0,a.suffered_s??0]));
return[u("table",{class:"rows waits"},u("caption",{class:"visually-hidden"},"Seconds waited since the start, by rank"),u(
"thead",{},u("tr",{},u("th",{scope:"col"},"Rank"),u("th",{scope:"col",colspan:"2",class:"to-left"},u("span",{"aria-hidde\
n":"true"},"\u25C2 "),"waited for others"),u("th",{scope:"col",colspan:"2"},"made others wait",u("span",{"aria-hidden":"\
true"}," \u25B8")))),u("tbody",{},s.map(a=>Ni(a,r,o)))),pt(t.length,Qo,e,n)]}function Ni(t,e,n){let o=(t.caused_s??0)>(t.
suffered_s??0);return u("tr",{key:t.rank,"data-part-in-it":o?"culprit":"victim"},u("th",{scope:"row",class:"who"},X(t.rank,
n),t.node?[" ",u("small",{},b(t.node))]:null),u("td",{class:"number"},g(t.suffered_s)?N(t.suffered_s):""),u("td",{class:"\
half to-left"},D(t.suffered_s,e,"victim")),u("td",{class:"half"},D(t.caused_s,e,"culprit")),u("td",{class:"number to-sta\
rt"},g(t.caused_s)?N(t.caused_s):""))}var Ci=9;function Hi(){let t=Xo(),e=null,n=document.documentElement.dataset.theme,o=!1,s=null,r=Ao(window,f=>{f.section!==
s&&it(`Since when: ${f.section||"all sections"}`),s=f.section,c(),t.look(f)});s=r.chosen().section;let a={select:r.select,
retry:t.retry,login:t.login},l=Li(a);function i(){o=!1,e&&Pi(l,e,Ii(e,r.chosen(),n))}function c(){if(document.hidden)return i();
o||(o=!0,window.requestAnimationFrame(i))}Wi(document.querySelector(".top-bar")),Jo(se("theme"),f=>{n=f,c()}),t.start(f=>{
e=f,c()},r.chosen())}function Wi(t){let e=()=>document.documentElement.style.setProperty("--bar-height",`${t.offsetHeight}\
px`);new ResizeObserver(e).observe(t),e()}function Li(t){let e=(n,o)=>n(se(o),t);return{alerts:e(Qe,"alerts"),announcer:wn(),
answer:e(hn,"answer"),connection:kn(se("connection"),se("notice"),t),figures:e(yn,"figures"),firstSteps:e(bn,"first-step\
s"),ledger:e(xn,"ledger"),liveness:e(Qn,"liveness"),login:e(to,"login"),matrix:e(Eo,"matrix"),picker:e(Co,"picker"),rank:e(
Fo,"rank"),rankTime:e(Ko,"rank-time"),sectionHeat:e(jo,"sections"),verdicts:e(Po,"verdicts"),waits:e(ts,"waits")}}function se(t){
return document.querySelector(`[data-part="${t}"]`)}function Ii(t,e,n){let o=t.picture?.run;return{run:o?.run_id??e.run,
group:o?.group??e.group,section:e.section??"",rank:e.rank,theme:n}}function Pi(t,e,n){let{picture:o,runs:s,timeline:r,rank:a,
connection:l,problem:i}=e;t.connection.update(o,n,l,i,s?.history_problem,s?.problems),t.login.update(l),t.picker.update(
o,n,s),t.firstSteps.update(o,n,s),Fi(document.querySelector("[data-part=charts]"),o);let c=["answer","figures","ledger",
"waits","liveness","alerts","verdicts"];for(let f of c)t[f].update(o,n);o&&(t.matrix.update(o,n),t.sectionHeat.update(o,
n),t.rankTime.update(o,n,r)),t.rank.update(o,n,a,l.state==="saved"),t.announcer.update(o,l,i),(o||s||l.state==="locked")&&
(document.body.dataset.ready="")}function Fi(t,e){t.hidden=!e,e&&(t.dataset.sections=e.sections.length>Ci?"many":"few")}
Hi();})();
